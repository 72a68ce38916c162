//! A network namespace with rules, and documents to restore in it.

use std::fmt;
use std::time::Duration;

use testkit::iptables::Programs;
use testkit::netns::Netns;
use vipline_iptables::{Client, Error, Family, TableName, Variant, program_name};

/// Rules before a failure.
pub(crate) const BEFORE: &str = "\
*filter
:OURS - [0:0]
-A OURS -p tcp -m tcp --dport 80 -m comment --comment \"some words\" -j ACCEPT
-A INPUT -j OURS
COMMIT
";

/// A network namespace with the programs of a variant.
pub(crate) struct Lab {
    pub(crate) netns: Netns,
    pub(crate) programs: Programs,
    pub(crate) family: Family,
    pub(crate) variant: Variant,
    pub(crate) client: Client,
}

impl Lab {
    pub(crate) fn new(family: Family, variant: Variant) -> Self {
        let netns = Netns::new().unwrap();
        let programs = Programs::new().unwrap();
        let [save, restore] = programs
            .variant(&format!("{}-{variant}", program_name(family)))
            .unwrap();
        let client = netns.run(|| Client::open_at(save, restore)).unwrap();
        Self {
            netns,
            programs,
            family,
            variant,
            client,
        }
    }

    /// Returns a lab for each family and variant, with rules.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let pairs = Family::ALL
            .into_iter()
            .flat_map(|family| Variant::ALL.map(|variant| (family, variant)));
        pairs.map(|(family, variant)| {
            let mut lab = Self::new(family, variant);
            lab.restore(BEFORE).unwrap();
            lab
        })
    }

    pub(crate) fn restore(&mut self, document: impl fmt::Display + Sync) -> Result<(), Error> {
        self.netns.run(|| self.client.restore(&document))
    }

    pub(crate) fn save(&mut self, table: &str) -> Result<String, Error> {
        let table = TableName::new(table).unwrap();
        self.netns.run(|| self.client.save(table))
    }

    /// Returns the rules of `filter`.
    pub(crate) fn rules(&mut self) -> String {
        self.rules_of("filter")
    }

    /// Returns the saved lines of a table without comments, which contain the time.
    pub(crate) fn rules_of(&mut self, table: &str) -> String {
        let text = self.save(table).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| format!("{line}\n")).collect()
    }

    /// Restores a document that must be rejected without changes, and returns the
    /// error.
    #[track_caller]
    pub(crate) fn rejected(&mut self, document: impl fmt::Display + Sync) -> Error {
        let before = self.rules();
        let error = self.restore(document).unwrap_err();
        assert_eq!(self.rules(), before, "{error}");
        error
    }

    /// Returns a client with a script as restore program. `$REAL` is the path of the
    /// real program.
    pub(crate) fn with_script(&self, script: &str) -> Client {
        let prefix = format!("{}-{}", program_name(self.family), self.variant);
        let real = self.programs.path(&format!("{prefix}-restore"));
        let script = format!(
            "REAL={}\nif [ \"$1\" = --version ]; then exec \"$REAL\" --version; fi\n{script}",
            real.display()
        );
        let restore = self.programs.script("wrapper", &script).unwrap();
        let save = self.programs.path(&format!("{prefix}-save"));
        self.netns.run(|| Client::open_at(save, restore)).unwrap()
    }
}

/// Waits until a condition is true, at most ten seconds.
pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the condition does not become true");
}

/// A document that calls a function in the middle of formatting.
pub(crate) struct Interrupted<F: Fn()> {
    pub(crate) before: String,
    pub(crate) act: F,
    pub(crate) after: String,
}

impl<F: Fn()> fmt::Display for Interrupted<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.before)?;
        (self.act)();
        f.write_str(&self.after)
    }
}

/// A document with many rules.
pub(crate) struct Many(pub(crate) usize);

impl fmt::Display for Many {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("*filter\n:MANY - [0:0]\n")?;
        for number in 0..self.0 {
            writeln!(
                f,
                "-A MANY -p tcp -m tcp --dport {} -m comment --comment \"rule {number}\" -j DROP",
                number % 65536
            )?;
        }
        f.write_str("COMMIT\n")
    }
}
