//! Configuration: file, flags, defaults and validation.
//!
//! - [`Configuration`]: the fields of the file;
//! - [`Settings`]: the valid configuration, in the types of the other modules.

mod file;

mod settings;

pub use file::{
    Cache, ClientConnection, Configuration, Forward, LogFormat, Logging, NodeLocal, Pods, Stub, Tcp,
};
pub use settings::{Settings, Source};
