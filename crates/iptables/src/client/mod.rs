//! Client that runs `iptables-save` and `iptables-restore`.
mod process;

mod lines;

mod tool_error;

mod run;

mod readable;

mod error;

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str;
use std::time::Duration;

use rustix::io::Errno;

use crate::{Family, TableName, Variant, Version, program_name};

pub use error::{DocumentLine, Error, Reason};
use lines::{Lines, line_of};
use process::{CHUNK, Process, Wrote, failed, find, name_of};
use tool_error::missing_extensions;

/// Default time to wait for the xtables lock, in seconds.
const WAIT: u32 = 5;

/// Default timeout of a program.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Saves and restores the tables of one address family.
///
/// The programs run in the network namespace of the calling thread, and a call blocks
/// until the program ends.
/// Each program has its own process group, so that Ctrl-C for the caller does not
/// interrupt it. The kernel kills the program if the calling thread ends.
#[derive(Debug)]
pub struct Client {
    save: PathBuf,
    pub(crate) restore: PathBuf,
    variant: Variant,
    version: Version,
    pub(crate) wait: u32,
    pub(crate) timeout: Duration,
    last_restore_pid: Option<u32>,
}

/// Tables and counters to save. Default: all tables, without counters of rules.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct SaveOptions {
    /// The table; `None` for all tables.
    pub table: Option<TableName>,
    /// Whether rules have counters: `--counters`.
    pub counters: bool,
}

impl SaveOptions {
    /// Saves all tables without counters of rules.
    pub fn new() -> Self {
        Self::default()
    }

    /// Saves one table: `-t TABLE`.
    #[must_use]
    pub fn with_table(mut self, table: TableName) -> Self {
        self.table = Some(table);
        self
    }

    /// Saves the counters of rules: `--counters`.
    #[must_use]
    pub fn with_counters(mut self) -> Self {
        self.counters = true;
        self
    }
}

impl Client {
    /// Finds the programs of the default variant.
    ///
    /// Searches `PATH`, then `/usr/sbin` and `/sbin`.
    ///
    /// # Errors
    ///
    /// [`Error::MissingProgram`] if a program is missing.
    /// [`Error::Outdated`] if the restore program is older than [`Version::MINIMUM`].
    /// [`Error::Spawn`], [`Error::Timeout`] and others if its `--version` fails.
    pub fn open(family: Family) -> Result<Self, Error> {
        Self::named(program_name(family))
    }

    /// Finds the programs of a variant, such as `iptables-nft-save`.
    ///
    /// # Errors
    ///
    /// The same as [`open`](Self::open).
    pub fn open_variant(family: Family, variant: Variant) -> Result<Self, Error> {
        Self::named(&format!("{}-{variant}", program_name(family)))
    }

    /// Uses the programs at these paths. Only runs `restore`, with `--version`.
    ///
    /// # Errors
    ///
    /// The same as [`open`](Self::open), but the first save reports a missing `save`.
    pub fn open_at(save: impl Into<PathBuf>, restore: impl Into<PathBuf>) -> Result<Self, Error> {
        let (save, restore) = (save.into(), restore.into());
        let (version, variant) = query_version(&restore)?;
        Ok(Self {
            save,
            restore,
            variant,
            version,
            wait: WAIT,
            timeout: TIMEOUT,
            last_restore_pid: None,
        })
    }

    fn named(name: &str) -> Result<Self, Error> {
        Self::open_at(
            find(&format!("{name}-save"))?,
            find(&format!("{name}-restore"))?,
        )
    }

    /// Returns the variant of the programs.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// Returns the version of the programs.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the process ID of the last restore, successful or not.
    ///
    /// The nft variant uses a netlink socket with this number as port ID, unless
    /// another socket already had that port ID.
    /// Multicast notifications about its changes carry the port ID of the socket.
    pub fn last_restore_pid(&self) -> Option<u32> {
        self.last_restore_pid
    }

    /// Sets the time to wait for the xtables lock, in seconds. Default: 5.
    ///
    /// The nft variant has no lock.
    pub fn set_wait(&mut self, seconds: u32) {
        self.wait = seconds;
    }

    /// Sets the timeout of a program. Default: 300 s.
    ///
    /// After the timeout the program is killed. Each table is still changed
    /// completely or not at all.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Saves a table without the counters of its rules: `iptables-save -t TABLE`.
    ///
    /// # Errors
    ///
    /// [`Error::Incompatible`] if the table has rules that only `nft` can list.
    /// [`Error::Unsupported`] if the kernel lacks the table.
    /// [`Error::Denied`], [`Error::Timeout`] and others if the program fails.
    pub fn save(&mut self, table: TableName) -> Result<String, Error> {
        self.save_with(SaveOptions::new().with_table(table))
    }

    /// Saves all tables or one, with or without the counters of rules.
    ///
    /// The tables of one save are read one after another.
    ///
    /// ```no_run
    /// use vipline_iptables::{Client, Family, SaveOptions, Tables};
    ///
    /// let saved = Client::open(Family::V4)?.save_with(SaveOptions::new().with_counters())?;
    /// for rule in Tables::parse(&saved)?.iter().flat_map(|table| table.rules()) {
    ///     println!("{}: {:?}", rule.spec(), rule.counters());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`save`](Self::save).
    pub fn save_with(&mut self, options: SaveOptions) -> Result<String, Error> {
        let mut text = String::new();
        self.save_lines_with(options, |line| {
            text.push_str(line);
            text.push('\n');
            Ok::<(), Error>(())
        })?;
        Ok(text)
    }

    /// Saves a table and calls `each` for every line as it is printed.
    ///
    /// Buffers at most one line and a chunk of 64 KiB.
    ///
    /// # Errors
    ///
    /// The same as [`save`](Self::save), and the first error of `each`, which stops
    /// the save.
    /// After an error, the lines passed to `each` are incomplete.
    pub fn save_lines<E: From<Error>>(
        &mut self,
        table: TableName,
        each: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        self.save_lines_with(SaveOptions::new().with_table(table), each)
    }

    /// Like [`save_lines`](Self::save_lines), with options.
    ///
    /// # Errors
    ///
    /// The same as [`save_lines`](Self::save_lines).
    pub fn save_lines_with<E: From<Error>>(
        &mut self,
        options: SaveOptions,
        mut each: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        let program = name_of(&self.save);
        let mut take = |number, line: &[u8]| {
            let line = str::from_utf8(line).map_err(|_| Error::Decode {
                program: program.clone(),
                line: number,
            })?;
            if let Some(table) = incompatible(line).and_then(|name| TableName::new(name).ok()) {
                return Err(Error::Incompatible { table }.into());
            }
            each(line)
        };
        let table = options.table.as_ref().map(|table| ["-t", table.as_str()]);
        let counters = options.counters.then_some("--counters");
        let args: Vec<&str> = table.into_iter().flatten().chain(counters).collect();
        let (input, output) = (Stdio::null(), Stdio::piped());
        let mut process = Process::start(&self.save, &args, input, output, self.timeout)?;
        let mut lines = Lines::default();
        while !process.step(false)? {
            lines.push(&process.output, &mut take)?;
            process.output.clear();
        }
        lines.push(&process.output, &mut take)?;
        lines.finish(&mut take)?;
        process.conclude(self.wait, |_| None)?;
        Ok(())
    }

    /// Applies a restore document: `iptables-restore --noflush --counters`.
    ///
    /// The document is formatted while the program reads it.
    /// Chains that the document does not name remain unchanged.
    /// The part before each `COMMIT` is applied atomically.
    ///
    /// # Errors
    ///
    /// [`Error::Rejected`] names the rejected line.
    /// [`Error::Locked`] if another program held the xtables lock.
    /// [`Error::Denied`], [`Error::Timeout`] and others if the program fails.
    /// [`Error::committed`] returns whether the rules may have changed.
    pub fn restore(&mut self, document: &impl fmt::Display) -> Result<(), Error> {
        self.run_restore(document, &["--noflush", "--counters"])
    }

    /// Checks a restore document without changing rules: `iptables-restore --test`.
    ///
    /// The check does not find errors that only the kernel detects.
    /// With the nft variant, it does not find jumps to missing chains.
    ///
    /// # Errors
    ///
    /// The same as [`restore`](Self::restore).
    pub fn test(&mut self, document: &impl fmt::Display) -> Result<(), Error> {
        self.run_restore(document, &["--noflush", "--counters", "--test"])
    }

    /// Checks a restore document like [`test`](Self::test), and returns the names of the matches
    /// and targets that the kernel lacks, in the order of the document.
    ///
    /// The programs ask the kernel for each extension, which loads its module, but only warn if
    /// the kernel lacks it, and `--test` succeeds. A restore would be rejected.
    ///
    /// # Errors
    ///
    /// The same as [`restore`](Self::restore). [`Error::Rejected`] if a program lacks an
    /// extension itself: its library, such as `libxt_nfacct.so`, is not installed.
    pub fn test_extensions(
        &mut self,
        document: &impl fmt::Display,
    ) -> Result<Vec<Box<str>>, Error> {
        let args = ["--noflush", "--counters", "--test"];
        let printed = self.run_restore_with_output(document, &args)?;
        Ok(missing_extensions(&printed))
    }

    fn run_restore(&mut self, document: &impl fmt::Display, args: &[&str]) -> Result<(), Error> {
        self.run_restore_with_output(document, args).map(drop)
    }

    /// Runs the restore program. Returns what it printed on standard error.
    fn run_restore_with_output(
        &mut self,
        document: &impl fmt::Display,
        args: &[&str],
    ) -> Result<String, Error> {
        let wait = self.wait.to_string();
        let args = [&["-w", &wait], args].concat();
        let (input, output) = (Stdio::piped(), Stdio::null());
        let mut process = Process::start(&self.restore, &args, input, output, self.timeout)?;
        self.last_restore_pid = Some(process.id());
        let mut feed = Feed {
            process: &mut process,
            pending: Vec::with_capacity(CHUNK),
            wrote: Ok(Wrote::All),
        };
        let is_printed = write!(feed, "{document}").is_ok() && feed.flush().is_ok();
        let wrote = feed.wrote?;
        if wrote == Wrote::All && !is_printed {
            return Err(failed("print the document")(Errno::INVAL));
        }
        process.finish()?;
        match process.conclude(self.wait, |line| Some(line_of(document, line))) {
            Ok(()) if wrote == Wrote::Part => Err(Error::Rejected {
                program: process.program,
                status: 0,
                command: None,
                line: None,
                message: "ended before it had read the whole document".into(),
            }),
            Ok(()) => Ok(process.complaint()),
            Err(error) => Err(self.with_cause(error)),
        }
    }

    /// Replaces the error about a table line with the error of a save, which reports
    /// the cause.
    fn with_cause(&mut self, error: Error) -> Error {
        let table = error
            .line()
            .and_then(|line| line.text.as_deref()?.strip_prefix('*'))
            .and_then(|table| TableName::new(table).ok());
        let Some(table) = table else { return error };
        let saved = self.save_lines(table, |_| Ok::<(), Error>(()));
        saved.err().unwrap_or(error)
    }
}

/// Writes a document to a program while it is formatted.
struct Feed<'a> {
    process: &'a mut Process,
    /// Pending output, at most one chunk.
    pending: Vec<u8>,
    wrote: Result<Wrote, Error>,
}

impl Feed<'_> {
    /// Writes the pending output.
    fn flush(&mut self) -> fmt::Result {
        let wrote = self.process.write(&self.pending);
        if matches!(wrote, Ok(Wrote::All)) {
            self.pending.clear();
            return Ok(());
        }
        self.wrote = wrote;
        Err(fmt::Error)
    }
}

impl fmt::Write for Feed<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let room = CHUNK - self.pending.len();
            let (piece, after) = rest.split_at(room.min(rest.len()));
            self.pending.extend_from_slice(piece);
            rest = after;
            if self.pending.len() == CHUNK {
                self.flush()?;
            }
        }
        Ok(())
    }
}

fn query_version(path: &Path) -> Result<(Version, Variant), Error> {
    let (input, output) = (Stdio::null(), Stdio::piped());
    let mut process = Process::start(path, &["--version"], input, output, TIMEOUT)?;
    process.finish()?;
    let ended = process.conclude(0, |_| None);
    let answer = String::from_utf8_lossy(&process.output);
    match (ended, Version::parse(&answer)) {
        (Ok(()), Some((version, variant))) if version >= Version::MINIMUM => Ok((version, variant)),
        (Ok(()) | Err(Error::Rejected { .. }), _) => Err(Error::Outdated {
            program: process.program,
            answer: answer.trim().into(),
        }),
        (Err(error), _) => Err(error),
    }
}

/// Returns the name of a table that only `nft` can list, if a line reports one.
fn incompatible(line: &str) -> Option<&str> {
    line.strip_prefix("# Table `")?
        .strip_suffix("' is incompatible, use 'nft' tool.")
}
