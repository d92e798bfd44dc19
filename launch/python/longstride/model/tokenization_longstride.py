"""Text to the tokens of a run's SentencePiece model, the same that `longstride` makes of it, and back. Versions of
SentencePiece may break ties between the pieces of a unigram model differently.

Words are encoded one by one, or lines if pieces cross words, as in datasets/tokens/text_ids.h. Where the model has bytes,
these stand for what it cannot take, and the space that some models put before a text is left out.
"""
import os
import re
import shutil

import sentencepiece
from transformers import PreTrainedTokenizer

SPACE = "\u2581"  # in pieces
WORD, LINE = re.compile("\n| *[^ \n]+| +"), re.compile("\n|[^\n]+")
PLAIN = re.compile(f"([^{SPACE}\0\ud800-\udfff]+)|[{SPACE}\0\ud800-\udfff]+")
SURROGATE = re.compile("[\ud800-\udfff]")
MOST_KNOWN = 1 << 16  # words


def opened(path):
    if path is None or not os.path.isfile(path):
        raise ValueError(f"{path or 'tokenizer.model'}: is missing; put the tokenizer of the run back")
    pieces = sentencepiece.SentencePieceProcessor()
    try:
        whole = os.path.getsize(path) > 0 and pieces.Load(path)
    except (OSError, RuntimeError):
        whole = False
    if not whole:
        raise ValueError(f"{path}: is no SentencePiece model, or is damaged or cut short; put the tokenizer of the run back")
    return pieces


def bytes_of(letter):
    """One that stands for a byte that is no UTF-8, as surrogateescape has it, is that byte."""
    return letter.encode("utf-8", "surrogateescape" if "\udc80" <= letter <= "\udcff" else "surrogatepass")


class LongstrideTokenizer(PreTrainedTokenizer):
    vocab_files_names = {"vocab_file": "tokenizer.model"}
    model_input_names = ["input_ids", "attention_mask"]

    def __init__(self, vocab_file, **kwargs):
        self.vocab_file = vocab_file
        self.pieces = opened(vocab_file)
        self.names = [self.pieces.id_to_piece(i) for i in range(len(self.pieces))]
        self.numbers = {name: i for i, name in enumerate(self.names)}
        self.texts = [self.text_of(i) for i in range(len(self.pieces))]
        self.of_byte = {self.texts[i]: i for i in range(len(self.pieces)) if self.pieces.is_byte(i)}
        within = [text.lstrip(b" ") for text in self.texts]
        ordinary = [i for i in range(len(self.pieces)) if not self.pieces.is_byte(i) and not self.pieces.is_unknown(i)]
        self.apart = LINE if any(b" " in within[i] or b"\n" in within[i] for i in ordinary) else WORD
        begin = self.pieces.encode("a")
        self.puts_space = bool(begin) and self.texts[begin[0]].startswith(b" ")
        self.known = {}
        start = "<|begin|>"  # the first id beyond the pieces, which comes before every sequence
        while start in self.numbers:
            start = f"<{start}>"
        for name in ("bos_token", "eos_token", "pad_token"):
            kwargs.setdefault(name, start)
        super().__init__(**{"clean_up_tokenization_spaces": False, "split_special_tokens": True, **kwargs})

    def text_of(self, i):
        if self.pieces.is_byte(i):
            return bytes([int(self.names[i][3:5], 16)])
        if self.pieces.is_unknown(i):
            return " \u2047 ".encode()
        if self.pieces.is_control(i) or self.pieces.is_unused(i):
            return b""
        return self.names[i].replace(SPACE, " ").encode()

    @property
    def vocab_size(self):
        return len(self.names)

    def get_vocab(self):
        return {**self.numbers, **self.added_tokens_encoder}

    def _tokenize(self, text, **unused):
        found = []
        for word in self.apart.findall(text):
            if word not in self.known:
                if len(self.known) >= MOST_KNOWN:
                    self.known.clear()
                self.known[word] = [self.names[i] for i in self.encoded(word)]
            found.extend(self.known[word])
        return found

    def encoded(self, word):
        """The ids of a word or line."""
        if not self.of_byte:
            if SURROGATE.search(word):
                raise ValueError("the text has what is no UTF-8, for which this tokenizer has no pieces; replace it first")
            return self.pieces.encode(word)
        ids = []
        for part in PLAIN.finditer(word):
            if part[1] and part[1] != "\n":
                ids += self.encoded_plain(part[1])
            else:
                ids += [self.of_byte[bytes([byte])] for letter in part[0] for byte in bytes_of(letter)]
        return ids

    def encoded_plain(self, part):
        """Behind a line feed, which is a piece of its own, no space is put."""
        if self.puts_space:
            ids, feed = self.pieces.encode("\n" + part), self.of_byte[b"\n"]
            if feed in ids[:2]:
                return ids[ids.index(feed) + 1:]
        return self.pieces.encode(part)

    def _convert_token_to_id(self, token):
        return self.numbers.get(token, self.pieces.unk_id())

    def _convert_id_to_token(self, index):
        return self.names[index] if 0 <= index < len(self.names) else ""

    def convert_tokens_to_string(self, tokens):
        whole = b"".join(self.texts[self.numbers[t]] if t in self.numbers else t.encode() for t in tokens)
        return whole.decode("utf-8", "replace")

    def _decode(self, token_ids, skip_special_tokens=False, **unused):
        ids = [token_ids] if isinstance(token_ids, int) else token_ids
        return self.convert_tokens_to_string(self.convert_ids_to_tokens(ids, skip_special_tokens))

    def save_vocabulary(self, save_directory, filename_prefix=None):
        path = os.path.join(save_directory, (filename_prefix + "-" if filename_prefix else "") + "tokenizer.model")
        if os.path.abspath(path) != os.path.abspath(self.vocab_file):
            shutil.copyfile(self.vocab_file, path)
        return (path,)
