//! Interfaces of a host.

/// An interface.
///
/// Exhaustive: callers describe the interfaces of a host.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Index, if known.
    pub index: Option<u32>,
    /// Hardware type (`ARPHRD_*`), if known.
    pub hardware: Option<u16>,
    /// Group, if known.
    pub group: Option<u32>,
    /// Kind of a virtual interface, such as `veth`, if known.
    pub kind: Option<String>,
}

impl Interface {
    /// Creates an interface of which only the name is known.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Sets the index.
    #[must_use]
    pub fn with_index(mut self, index: u32) -> Self {
        self.index = Some(index);
        self
    }
}

impl From<&str> for Interface {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}
