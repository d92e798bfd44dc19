#!/usr/bin/env python3
"""Writes articles of WikiExtractor's output (<doc ..> lines) with a mark behind each, for `longstride prepare bytes`.

    articles.py wiki.txt.xz > articles.txt
    longstride prepare bytes --input articles.txt --documents marks --groups lead --output data/articles.h5

    articles.py wiki.txt.xz --cloze 8 --labels cloze.tsv > cloze.txt
    longstride prepare bytes --input cloze.txt --documents marks --labels cloze.tsv --split 0.9,0.05,0.05 \\
        --output data/cloze.h5

--cloze N makes questions: the lead of an article without its title, and N articles, of which one is the same: a title,
and --excerpt bytes from behind the lead. The answer is the span of its title. With --group-labels, for `prepare
--groups paragraphs`, it is the number 1 of its paragraph, and 0 of others.
"""
import re
import sys

import packaged_data as data

MARK = "<|endoftext|>"


def articles_of(path):
    """Title, lead and rest."""
    lines, inside = [], False
    for _, line in data.lines_of(path):
        if line.startswith("<doc "):
            lines, inside = [], True
        elif line.startswith("</doc>"):
            if inside:
                yield parts_of(lines)
            inside = False
        elif inside:
            lines.append(line.replace(MARK, ""))


def parts_of(lines):
    body = [line for line in lines if line.strip()]
    return (body[0], body[1], "\n".join(body[2:])) if len(body) > 1 else ("\n".join(body), "", "")


def cut(text, most):
    """At most so many bytes, whole characters."""
    return text.encode()[:most].decode("utf-8", "ignore")


def question_of(number, articles, count, excerpt, seed):
    """Text, span in bytes, and the place of the same article."""
    title, lead, _ = articles[number]
    others = [other for other in data.shuffled(range(len(articles)), f"{seed} {number}")[:count] if other != number]
    hidden = re.sub(re.escape(title), "_", lead, flags=re.IGNORECASE)
    text, span = cut(hidden, 2 * excerpt) + "\n", (0, 0)
    candidates = data.shuffled([number] + others[:count - 1], f"{number} {seed}")
    for other in candidates:
        begin = len(text.encode()) + 1
        if other == number:
            span = (begin, begin + len(title.encode()))
        text += "\n" + articles[other][0] + "\n" + cut(articles[other][2], excerpt) + "\n"
    return text, span, candidates.index(number)


def main():
    parser = data.parser_of(__doc__)
    parser.add_argument("wiki")
    parser.add_argument("--least", type=int, default=1000, help="bytes of an article")
    parser.add_argument("--cloze", type=int, default=0)
    parser.add_argument("--excerpt", type=int, default=300)
    parser.add_argument("--labels")
    parser.add_argument("--group-labels")
    parser.add_argument("--seed", type=int, default=1)
    o = parser.parse_args()
    if (o.cloze > 0) != (o.labels is not None or o.group_labels is not None):
        data.refuse("--cloze needs --labels or --group-labels, the files for answers, and these need it; give both or none")
    articles = [a for a in articles_of(o.wiki) if a[1] and len("\n\n".join(a).encode()) >= o.least]
    if len(articles) < max(1, o.cloze):
        data.refuse(f"{o.wiki}: has {len(articles)} articles of {o.least} bytes between lines of <doc ..> and </doc>, fewer "
                    f"than {max(1, o.cloze)}; give WikiExtractor's output")
    if o.cloze == 0:
        for article in articles:
            sys.stdout.buffer.write(("\n\n".join(article) + "\n" + MARK).encode())
        return data.say(f"{len(articles):,} articles")
    spans, groups = [], []
    for number in range(len(articles)):
        text, span, place = question_of(number, articles, o.cloze, o.excerpt, o.seed)
        sys.stdout.buffer.write((text + MARK).encode())
        spans.append(span)
        groups.append(" ".join("1" if i == place + 1 else "0" for i in range(o.cloze + 1)))
    if o.labels:
        data.write_table(o.labels, [(i, f"{begin}-{end}") for i, (begin, end) in enumerate(spans, 1)])
    if o.group_labels:
        data.write_table(o.group_labels, enumerate(groups, 1))
    data.say(f"{len(spans):,} questions about {o.cloze} articles each")


if __name__ == "__main__":
    main()
