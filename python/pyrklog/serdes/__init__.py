"""Keys and values of records as JSON, and back: Avro, Protobuf, schemas of a registry.

For one record at a time, as ``pyrklog consume`` and ``produce`` have them; :mod:`pyrklog.scanning`
decodes whole topics into columns. :mod:`.source` makes codecs of what a user names.
"""
