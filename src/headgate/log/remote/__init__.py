"""Segments in object storage: the catalogue that lists them, the cache that readers see them through.

one stream   ──►  segments in object storage, oldest first    catalogue.py, storage.py
             ──►  segments in the stream's folder, then the newest one
a reader     ──►  files with holes on this machine             cache.py, summary.py
a mover      ──►  sealed segments go there, and old ones go    mover.py (of `log`)
"""

from headgate.log.remote.cache import RemoteFiles, RemoteSegment
from headgate.log.remote.catalogue import Catalogue, catalogue_of, load_catalogue, save_catalogue
from headgate.log.remote.storage import ObjectStorage, check_location, check_no_secret, storage_at
from headgate.log.remote.summary import Summary
