//! Client methods for single commands.

#[cfg(doc)]
use crate::Reason;
use crate::{Client, Command, Entry, Error, Name, Set, Strictness};

/// Single commands. [`Client::commit`] sends many.
impl Client {
    /// Creates a set.
    ///
    /// [`Self::commit`] with [`Strictness::Exist`] accepts a set that already exists.
    ///
    /// # Errors
    ///
    /// - [`Error::Rejected`]: the kernel rejected the set, with [`Reason::Exists`] if the
    ///   name is in use.
    /// - Any other [`Error`]: it is unknown whether the set was created.
    pub fn create(&mut self, set: Set) -> Result<(), Error> {
        self.one(Command::Create(Box::new(set), Strictness::Strict))
    }

    /// Destroys a set with its entries.
    ///
    /// # Errors
    ///
    /// - [`Error::Rejected`]: with [`Reason::Missing`] if the set does not exist, or
    ///   [`Reason::InUse`] if a rule or a list uses it.
    /// - Any other [`Error`]: it is unknown whether the set was destroyed.
    pub fn destroy(&mut self, name: &Name) -> Result<(), Error> {
        self.one(Command::Destroy(name.clone(), Strictness::Strict))
    }

    /// Removes the entries of a set.
    ///
    /// # Errors
    ///
    /// - [`Error::Rejected`] with [`Reason::Missing`]: the set does not exist.
    /// - Any other [`Error`]: it is unknown whether the entries were removed.
    pub fn flush(&mut self, name: &Name) -> Result<(), Error> {
        self.one(Command::Flush(name.clone()))
    }

    /// Renames a set.
    ///
    /// # Errors
    ///
    /// - [`Error::Rejected`]: with [`Reason::Missing`] if the set does not exist,
    ///   [`Reason::OtherName`] if the new name is in use, or [`Reason::InUse`] if a rule
    ///   or a list uses the set.
    /// - Any other [`Error`]: it is unknown whether the set was renamed.
    pub fn rename(&mut self, from: &Name, to: &Name) -> Result<(), Error> {
        self.one(Command::Rename(from.clone(), to.clone()))
    }

    /// Swaps two sets of one type, atomically for packets: rules that use the first set
    /// then use the second, and vice versa.
    ///
    /// # Errors
    ///
    /// - [`Error::Rejected`]: with [`Reason::Missing`] or [`Reason::OtherName`] if the
    ///   first or second set does not exist, or [`Reason::TypeMismatch`] if their types
    ///   differ.
    /// - Any other [`Error`]: it is unknown whether the sets were swapped.
    pub fn swap(&mut self, one: &Name, other: &Name) -> Result<(), Error> {
        self.one(Command::Swap(one.clone(), other.clone()))
    }

    /// Adds an entry.
    ///
    /// [`Self::commit`] with [`Strictness::Exist`] updates an entry that already exists,
    /// and sends many entries in one message.
    ///
    /// # Errors
    ///
    /// - [`Error::Rejected`]: the kernel rejected the entry, with [`Reason::Exists`] if
    ///   the set contains it.
    /// - Any other [`Error`]: it is unknown whether the entry was added.
    pub fn add(&mut self, entry: Entry) -> Result<(), Error> {
        self.one(Command::Add(Box::new(entry), Strictness::Strict))
    }

    /// Removes an entry.
    ///
    /// # Errors
    ///
    /// - [`Error::Rejected`]: the kernel rejected the entry, with [`Reason::Missing`] if
    ///   the set does not contain it.
    /// - Any other [`Error`]: it is unknown whether the entry was removed.
    pub fn delete(&mut self, entry: Entry) -> Result<(), Error> {
        self.one(Command::Delete(Box::new(entry), Strictness::Strict))
    }

    fn one(&mut self, command: Command) -> Result<(), Error> {
        self.commit(&vec![command].into())
    }
}
