"""Segments in object storage: the catalogue that lists them, the cache that readers see them through.

one stream   ──►  segments in object storage, oldest first    catalogue.py, storage.py
             ──►  segments in the stream's folder, then the newest one
a reader     ──►  files with holes on this machine             segment.py, summary.py; partial_file.py, cache.py
a mover      ──►  sealed segments go there, and old ones go    mover.py (of `log`)
             ──►  so do the files derived of them              derived_list.py, derived_mover.py
"""

from headgate.log.remote.catalogue import Catalogue, catalogue_of, load_catalogue, save_catalogue
from headgate.log.remote.derived_list import DerivedList, load_derived
from headgate.log.remote.partial_file import PartialFile
from headgate.log.remote.segment import RemoteSegment, is_cached_derived, make_derived_present
from headgate.log.remote.storage import ObjectStorage, check_location, check_no_secret, object_url, storage_at
from headgate.log.remote.summary import Summary
