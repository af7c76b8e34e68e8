"""Discovery, checking, linking, suppressions and fixing."""
