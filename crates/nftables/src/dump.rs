//! Options of dumps.

/// Options of [`Client::dump_with`](crate::Client::dump_with).
///
/// ```no_run
/// use vipline_nftables::{Client, DumpOptions, Family, Name, TableId};
///
/// let table = TableId::new(Family::Inet, Name::new("filter")?);
/// let mut client = Client::open()?;
/// let options = DumpOptions::new().with_dynamic_elements();
/// println!("{}", client.dump_with(&[table], options)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct DumpOptions {
    /// Whether the dump contains the elements of [dynamic](crate::Set::is_dynamic) sets
    /// and of meters. Default: false.
    ///
    /// Packets and timeouts change these elements without a new generation. The elements
    /// are therefore no snapshot, and `diff` compares them with the desired elements as
    /// those of other sets: it removes elements that packets added.
    pub dynamic_elements: bool,
}

impl DumpOptions {
    /// Creates the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Includes the elements of dynamic sets and of meters.
    #[must_use]
    pub fn with_dynamic_elements(mut self) -> Self {
        self.dynamic_elements = true;
        self
    }
}
