"""Write the seed corpus, one file a message under its hash: ``python tests/fuzz/make_corpus.py``."""

import hashlib
from pathlib import Path

from targets import seeds

CORPUS = Path(__file__).with_name("corpus")

for target, messages in seeds().items():
    (CORPUS / target).mkdir(parents=True, exist_ok=True)
    for message in messages:
        (CORPUS / target / hashlib.sha256(message).hexdigest()[:12]).write_bytes(message)
