//! Configuration: file, flags, defaults and validation.
