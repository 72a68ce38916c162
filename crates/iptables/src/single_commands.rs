//! Single commands, equal for both clients.

use crate::{ChainName, Rule, TableName};

/// Commands for single rules and user-defined chains, with the meaning of `iptables`.
///
/// [`Client`](crate::Client) runs a program for each command, and
/// [`nft::Client`](crate::nft::Client) sends a netlink message. Both accept and refuse the
/// same commands, so that a caller can decide at run time which one to use.
///
/// ```
/// use vipline_iptables::{ChainName, Refusal, Rule, SingleCommands, TableName};
///
/// /// Deletes a chain and its rules. A chain that does not exist is no error.
/// fn remove<C: SingleCommands>(client: &mut C, chain: ChainName) -> Result<(), C::Error> {
///     let filter = TableName::FILTER;
///     match client
///         .flush_chain(filter, chain)
///         .and_then(|()| client.delete_chain(filter, chain))
///     {
///         Err(error) if error.is_not_found() => Ok(()),
///         result => result,
///     }
/// }
/// ```
pub trait SingleCommands {
    /// Error of a command.
    type Error: Refusal;

    /// Returns whether a rule exists: `iptables -C`. Counters are not compared.
    ///
    /// A chain that does not exist has no rules, and no rule names a chain or an IP set that
    /// does not exist.
    ///
    /// # Errors
    ///
    /// The command failed.
    fn check(
        &mut self,
        table: TableName,
        chain: ChainName,
        rule: &Rule<'_>,
    ) -> Result<bool, Self::Error>;

    /// Appends a rule: `iptables -A`.
    ///
    /// # Errors
    ///
    /// [`is_not_found`](Refusal::is_not_found): there is no such chain, or a chain or IP
    /// set that the rule names does not exist.
    fn append(
        &mut self,
        table: TableName,
        chain: ChainName,
        rule: &Rule<'_>,
    ) -> Result<(), Self::Error>;

    /// Inserts a rule, which gets the number, from 1: `iptables -I`.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append). [`is_not_found`](Refusal::is_not_found): the chain has
    /// fewer than `number - 1` rules.
    fn insert(
        &mut self,
        table: TableName,
        chain: ChainName,
        number: u32,
        rule: &Rule<'_>,
    ) -> Result<(), Self::Error>;

    /// Deletes the first rule that equals a rule: `iptables -D`. Counters are not compared.
    ///
    /// # Errors
    ///
    /// [`is_not_found`](Refusal::is_not_found): no rule equals it, or there is no such
    /// chain.
    fn delete(
        &mut self,
        table: TableName,
        chain: ChainName,
        rule: &Rule<'_>,
    ) -> Result<(), Self::Error>;

    /// Creates a user-defined chain: `iptables -N`.
    ///
    /// # Errors
    ///
    /// [`is_already_exists`](Refusal::is_already_exists): the chain exists.
    fn new_chain(&mut self, table: TableName, chain: ChainName) -> Result<(), Self::Error>;

    /// Deletes all rules of a chain: `iptables -F`.
    ///
    /// # Errors
    ///
    /// [`is_not_found`](Refusal::is_not_found): there is no such chain.
    fn flush_chain(&mut self, table: TableName, chain: ChainName) -> Result<(), Self::Error>;

    /// Deletes a user-defined chain without rules: `iptables -X`.
    ///
    /// # Errors
    ///
    /// [`is_not_found`](Refusal::is_not_found): there is no such chain.
    /// [`is_busy`](Refusal::is_busy): the chain has rules, or a rule jumps to it.
    fn delete_chain(&mut self, table: TableName, chain: ChainName) -> Result<(), Self::Error>;

    /// Appends a rule unless it exists. Returns whether it was appended.
    ///
    /// Another program can append the same rule between check and append.
    ///
    /// ```no_run
    /// use vipline_iptables::matches::Match;
    /// use vipline_iptables::targets::Target;
    /// use vipline_iptables::{ChainName, Client, Family, Rule, SingleCommands, TableName, Transport};
    ///
    /// let ssh = Rule::new()
    ///     .with_protocol(Transport::Tcp)
    ///     .with_match(Match::dport(Transport::Tcp, 22))
    ///     .with_target(Target::Accept);
    /// let (filter, input) = (TableName::FILTER, ChainName::INPUT);
    /// Client::open(Family::V4)?.ensure(filter, input, &ssh)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    fn ensure(
        &mut self,
        table: TableName,
        chain: ChainName,
        rule: &Rule<'_>,
    ) -> Result<bool, Self::Error> {
        let exists = self.check(table, chain, rule)?;
        if !exists {
            self.append(table, chain, rule)?;
        }
        Ok(!exists)
    }
}

/// Why a command was refused, in the same words for both clients.
pub trait Refusal: std::error::Error + Send + Sync + 'static {
    /// Returns whether a chain, a rule or an IP set does not exist.
    fn is_not_found(&self) -> bool;

    /// Returns whether the chain to create exists.
    fn is_already_exists(&self) -> bool;

    /// Returns whether a chain to delete has rules, or a rule jumps to it.
    fn is_busy(&self) -> bool;

    /// Returns whether a capability is missing.
    fn is_denied(&self) -> bool;
}

/// Effect of a failed restore.
///
/// Exhaustive: a document is either not applied, or its effect is unknown.
#[cfg(any(feature = "client", feature = "nft"))]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Committed {
    /// No part of the document is applied.
    No,
    /// The part before each `COMMIT` is applied completely or not at all. Save the
    /// tables to find out.
    Unknown,
}
