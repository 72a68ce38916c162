//! Single commands of `iptables`.

use std::path::PathBuf;
use std::process::Stdio;

use crate::client::process::{Process, name_of};
use crate::options::lexer::Lexer;
use crate::{
    ChainName, Client, Command, Error, Refusal, Rule, RuleSpec, SingleCommands, TableName,
};

impl Client {
    /// Runs one command: `iptables -t TABLE COMMAND`.
    ///
    /// The program is the one beside the restore program: `iptables-nft` beside
    /// `iptables-nft-restore`. Each command is a process, which a legacy variant needs
    /// for reading and writing the whole table:
    /// [`restore`](Self::restore) applies many commands at once.
    ///
    /// # Errors
    ///
    /// [`Error::Rejected`] with the command and the words of iptables;
    /// [`Error::reason`] classifies them.
    /// [`Error::MissingProgram`] if there is no such program.
    /// [`Error::Denied`], [`Error::Locked`], [`Error::Timeout`] and others if the program
    /// fails.
    pub fn run(&mut self, table: TableName, command: &Command<'_>) -> Result<(), Error> {
        let wait = self.wait.to_string();
        let text = command.to_string();
        let mut args = vec!["-w", &wait, "-t", table.as_str()];
        let words = words(&text);
        args.extend(words.iter().map(String::as_str));
        let (input, output) = (Stdio::null(), Stdio::null());
        let path = self.single()?;
        let mut process = Process::start(&path, &args, input, output, self.timeout)?;
        process.finish()?;
        process.conclude(self.wait, |_| None).map_err(|mut error| {
            if let Error::Rejected { command, .. } = &mut error {
                *command = Some(text.into());
            }
            error
        })
    }

    /// Returns the path of the program for single commands.
    fn single(&self) -> Result<PathBuf, Error> {
        let restore = name_of(&self.restore);
        match restore.strip_suffix("-restore") {
            Some(name) => Ok(self.restore.with_file_name(name)),
            None => Err(Error::MissingProgram {
                program: format!("the program of single commands beside {restore}").into(),
            }),
        }
    }
}

impl SingleCommands for Client {
    type Error = Error;

    fn check(
        &mut self,
        table: TableName,
        chain: ChainName,
        rule: &Rule<'_>,
    ) -> Result<bool, Error> {
        let (chain, spec) = (chain.as_str().into(), spec_to_find(rule));
        match self.run(table, &Command::Check { chain, spec }) {
            Ok(()) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn append(&mut self, table: TableName, chain: ChainName, rule: &Rule<'_>) -> Result<(), Error> {
        let (chain, spec) = (chain.as_str().into(), spec(rule));
        self.run(table, &Command::Append { chain, spec })
    }

    fn insert(
        &mut self,
        table: TableName,
        chain: ChainName,
        number: u32,
        rule: &Rule<'_>,
    ) -> Result<(), Error> {
        let command = Command::Insert {
            chain: chain.as_str().into(),
            number: Some(number),
            spec: spec(rule),
        };
        self.run(table, &command)
    }

    fn delete(&mut self, table: TableName, chain: ChainName, rule: &Rule<'_>) -> Result<(), Error> {
        let (chain, spec) = (chain.as_str().into(), spec_to_find(rule));
        self.run(table, &Command::Delete { chain, spec })
    }

    fn new_chain(&mut self, table: TableName, chain: ChainName) -> Result<(), Error> {
        let chain = chain.as_str().into();
        self.run(table, &Command::NewChain { chain })
    }

    fn flush_chain(&mut self, table: TableName, chain: ChainName) -> Result<(), Error> {
        let chain = Some(chain.as_str().into());
        self.run(table, &Command::Flush { chain })
    }

    fn delete_chain(&mut self, table: TableName, chain: ChainName) -> Result<(), Error> {
        let chain = Some(chain.as_str().into());
        self.run(table, &Command::DeleteChain { chain })
    }
}

fn spec(rule: &Rule<'_>) -> RuleSpec<'static> {
    RuleSpec {
        counters: rule.counters,
        ..spec_to_find(rule)
    }
}

/// Returns the specification of an existing rule: iptables refuses counters with `-C` and
/// `-D`.
fn spec_to_find(rule: &Rule<'_>) -> RuleSpec<'static> {
    RuleSpec::new(rule.to_string())
}

/// Splits a printed command into arguments. Counters become `--set-counters`.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text;
    if let Some((counters, after)) = text.strip_prefix('[').and_then(|it| it.split_once("] ")) {
        let (packets, bytes) = counters.split_once(':').unwrap_or((counters, "0"));
        words.extend(["--set-counters", packets, bytes].map(str::to_owned));
        rest = after;
    }
    let mut lexer = Lexer::new(rest);
    // A printed command has no unclosed quotes, except in a rule that is kept as text.
    while let Ok(Some(word)) = lexer.next() {
        words.push(word.text.into_owned());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Family;

    #[test]
    fn printed_commands_are_split_into_arguments() {
        let text = r#"[1:2] -A INPUT -m comment --comment "a \"b\" c" -j ACCEPT"#;
        let command = Command::parse(text, Family::V4).unwrap().unwrap();
        assert_eq!(
            words(&command.to_string()),
            [
                "--set-counters",
                "1",
                "2",
                "-A",
                "INPUT",
                "-m",
                "comment",
                "--comment",
                "a \"b\" c",
                "-j",
                "ACCEPT",
            ]
        );
    }
}
