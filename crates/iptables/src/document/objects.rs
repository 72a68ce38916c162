//! Conversion of a saved document to objects.

use crate::{Chain, ChainName, Contents, Line, Object, ParseError, TableName, Tables};

impl Tables<'_> {
    /// Returns all chains as objects with their complete rules, as text.
    ///
    /// The difference of two saves becomes a restore document:
    ///
    /// ```
    /// use vipline_iptables::{Restore, Tables};
    /// use vipline_reconcile::diff;
    ///
    /// let before = "*filter\n:INPUT ACCEPT [0:0]\n:OLD - [0:0]\n-A INPUT -j OLD\nCOMMIT\n";
    /// let after = "*filter\n:INPUT DROP [0:0]\n:NEW - [0:0]\n-A INPUT -j NEW\nCOMMIT\n";
    /// let edits = diff(
    ///     Tables::parse(before)?.objects()?,
    ///     &Tables::parse(after)?.objects()?,
    /// );
    /// assert_eq!(
    ///     Restore::from_edits(&edits).to_string(),
    ///     "*filter
    /// :OLD - [0:0]
    /// :NEW - [0:0]
    /// :INPUT DROP [0:0]
    /// -F INPUT
    /// -A INPUT -j NEW
    /// -X OLD
    /// COMMIT
    /// "
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ParseError::Command`] for commands other than `-A`, and [`ParseError::Name`].
    pub fn objects(&self) -> Result<Vec<Object>, ParseError> {
        let mut objects = Vec::new();
        for table in self.iter() {
            let name = TableName::new(table.name())?;
            let mut lines = table.lines();
            if let Some(command) = lines.find(|line| matches!(line, Line::Command(_))) {
                return Err(ParseError::Command {
                    table: table.name().into(),
                    command: command.to_string().into(),
                });
            }
            for chain in table.chains() {
                let rules = table.rules_of(chain.name()).map(|line| line.spec());
                let contents = Contents::Rules(rules.collect());
                let mut object =
                    Chain::new(name, ChainName::new(chain.name())?).with_contents(contents);
                object.policy = chain.policy();
                objects.push(object.into());
            }
        }
        Ok(objects)
    }
}

#[cfg(test)]
mod tests {
    use vipline_reconcile::diff;

    use super::*;
    use crate::Restore;

    fn objects(text: &str) -> Vec<Object> {
        Tables::parse(text).unwrap().objects().unwrap()
    }

    #[test]
    fn a_document_names_only_the_chains_that_differ() {
        let table = |input: &str, a: &str, rest: &str| {
            format!(
                "*filter\n:INPUT {input} [1:2]\n:A - [0:0]\n:B - [0:0]\n{rest}\
                 -A INPUT -j A\n-A A {a}\n-A A -j B\n-A B -j RETURN\nCOMMIT\n"
            )
        };
        let before = table("ACCEPT", "-p tcp -j RETURN", "");
        for (after, expected) in [
            (before.clone(), ""),
            (
                table("ACCEPT", "-p udp -j RETURN", ""),
                "*filter\n:A - [0:0]\n-A A -p udp -j RETURN\n-A A -j B\nCOMMIT\n",
            ),
            (
                table("DROP", "-p tcp -j RETURN", ""),
                "*filter\n:INPUT DROP [0:0]\n-F INPUT\n-A INPUT -j A\nCOMMIT\n",
            ),
            (
                table("ACCEPT", "-p tcp -j RETURN", ":C - [0:0]\n"),
                "*filter\n:C - [0:0]\nCOMMIT\n",
            ),
        ] {
            let edits = diff(objects(&before), &objects(&after));
            assert_eq!(Restore::from_edits(&edits).to_string(), expected);
        }
    }

    #[test]
    fn documents_with_other_commands_are_errors() {
        let tables = Tables::parse("*nat\n:A - [0:0]\n-I A 1 -j RETURN\nCOMMIT\n").unwrap();
        assert_eq!(
            tables.objects().unwrap_err().to_string(),
            "table nat: unexpected command: -I A 1 -j RETURN"
        );
    }
}
