"""Files of golden vectors: safetensors with a float64 tensor CASE/NAME per list of numbers, and the settings of every case
as JSON in the metadata. In Python a file is {case: (settings, {name: numbers})}.
"""
import json
import struct


def write(path, cases):
    metadata = {case: json.dumps(settings, separators=(",", ":")) for case, (settings, _) in cases.items()}
    header, data = {"__metadata__": metadata}, b""
    for case, (_, tensors) in cases.items():
        for name, numbers in tensors.items():
            packed = struct.pack(f"<{len(numbers)}d", *numbers)
            header[f"{case}/{name}"] = {
                "dtype": "F64", "shape": [len(numbers)], "data_offsets": [len(data), len(data) + len(packed)],
            }
            data += packed
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read(path):
    """{} if there is no such file."""
    if not path.exists():
        return {}
    file = path.read_bytes()
    (length,) = struct.unpack("<Q", file[:8])
    header, data = json.loads(file[8 : 8 + length]), file[8 + length :]
    cases = {case: (json.loads(settings), {}) for case, settings in header.pop("__metadata__").items()}
    for path_in_file, entry in header.items():
        case, name = path_in_file.split("/", 1)
        begin, end = entry["data_offsets"]
        cases[case][1][name] = list(struct.unpack(f"<{entry['shape'][0]}d", data[begin:end]))
    return cases
