//! Options of dumps, and dumps as messages of the kernel.

use vipline_netlink::DecodeError;

use crate::{Assembler, RecordedMessage, Ruleset, TableId};

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

/// A dump as the messages of the kernel.
///
/// [`Client::record`](crate::Client::record) creates it. Messages have no loss when they are
/// saved and loaded: text has neither handles nor unknown attributes.
///
/// Exhaustive: these values reproduce a dump.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RecordedDump {
    /// Tables.
    pub tables: Vec<TableId>,
    /// Messages in the order of the dump.
    pub messages: Vec<RecordedMessage>,
}

impl RecordedDump {
    /// Returns the ruleset. Its generation is that of an empty ruleset.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if a message is malformed.
    pub fn ruleset(&self) -> Result<Ruleset, DecodeError> {
        let mut assembler = Assembler::new(&self.tables);
        for message in &self.messages {
            assembler.push(message.message_type, &message.payload)?;
        }
        Ok(assembler.finish())
    }
}
