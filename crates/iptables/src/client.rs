//! The client: runs the programs that save and restore.
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str;
use std::time::Duration;

use rustix::io::Errno;

use crate::lines::{Lines, line_of};
use crate::process::{CHUNK, Process, Wrote, failed, find, name_of};
use crate::{Error, Family, TableName, Variant, Version};

/// How many seconds the lock is waited for.
const WAIT: u32 = 5;

/// How long a program may run.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Saves and restores the tables of one family.
///
/// The programs run in the network namespace of the thread that calls.
/// Each has a process group of its own, so that a Ctrl-C for the caller does
/// not stop it midway.
#[derive(Debug)]
pub struct Client {
    save: PathBuf,
    restore: PathBuf,
    variant: Variant,
    version: Version,
    wait: u32,
    timeout: Duration,
    last_restore_pid: Option<u32>,
}

impl Client {
    /// Finds the programs of the machine's default variant.
    ///
    /// They are looked for on `PATH`, then in `/usr/sbin` and `/sbin`.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when a program is missing, [`Error::Outdated`] when
    /// it is too old.
    pub fn open(family: Family) -> Result<Self, Error> {
        Self::named(family.as_str())
    }

    /// Finds the programs of a variant, such as `iptables-nft-save`.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open).
    pub fn open_variant(family: Family, variant: Variant) -> Result<Self, Error> {
        Self::named(&format!("{family}-{variant}"))
    }

    /// Takes the programs at these paths.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open).
    pub fn open_at(save: impl Into<PathBuf>, restore: impl Into<PathBuf>) -> Result<Self, Error> {
        let (save, restore) = (save.into(), restore.into());
        let (version, variant) = ask_version(&restore)?;
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

    /// Returns the process that restored last, whether it succeeded or not.
    ///
    /// The nft variant talks to the kernel by a socket whose port is this
    /// number, unless another socket had it, and what the kernel tells
    /// everybody about a change carries the port of who made it.
    pub fn last_restore_pid(&self) -> Option<u32> {
        self.last_restore_pid
    }

    /// Sets for how many seconds the lock is waited for: 5, unless told here.
    ///
    /// The nft variant has no lock.
    pub fn set_wait(&mut self, seconds: u32) {
        self.wait = seconds;
    }

    /// Sets how long a program may run: five minutes, unless told here.
    ///
    /// Then it is killed; what comes before a `COMMIT` of its document is done
    /// as a whole or not at all even so.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Reads a table, without the counters of its rules.
    ///
    /// # Errors
    ///
    /// [`Error::Incompatible`] when the table has rules that only `nft` can
    /// list, [`Error::Unsupported`] when the kernel has no such table.
    pub fn save(&mut self, table: TableName) -> Result<String, Error> {
        let mut text = String::new();
        self.save_lines(table, |line| {
            text.push_str(line);
            text.push('\n');
            Ok::<(), Error>(())
        })?;
        Ok(text)
    }

    /// Reads a table, and hands its lines to `each` while they arrive.
    ///
    /// No more than a line and a piece of 64 KiB are held.
    ///
    /// # Errors
    ///
    /// Those of [`save`](Self::save), and the first one of `each`, which ends
    /// the reading; what was handed over before an error is not the whole
    /// table.
    pub fn save_lines<E: From<Error>>(
        &mut self,
        table: TableName,
        mut each: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        let program = name_of(&self.save);
        let mut take = |number, line: &[u8]| {
            let line = str::from_utf8(line).map_err(|_| Error::Decode {
                program: program.clone(),
                line: number,
            })?;
            if is_incompatible(line) {
                return Err(Error::Incompatible { table }.into());
            }
            each(line)
        };
        let args = ["-t", table.as_str()];
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

    /// Changes tables as a document tells.
    ///
    /// The document is written piece by piece while the program reads it.
    /// What it does not name stays as it is.
    /// What comes before a `COMMIT` is done there, as a whole or not at all.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] names the line that is to blame, and
    /// [`Error::committed`] tells what each error means for the rules.
    pub fn restore(&mut self, document: &impl fmt::Display) -> Result<(), Error> {
        self.give(document, &["--noflush", "--counters"])
    }

    /// Has a document read, but changes nothing.
    ///
    /// What only the kernel refuses is not found this way, nor is a jump to a
    /// chain that does not exist with the nft variant.
    ///
    /// # Errors
    ///
    /// Those of [`restore`](Self::restore).
    pub fn test(&mut self, document: &impl fmt::Display) -> Result<(), Error> {
        self.give(document, &["--noflush", "--counters", "--test"])
    }

    fn give(&mut self, document: &impl fmt::Display, args: &[&str]) -> Result<(), Error> {
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
            Ok(()) if wrote == Wrote::Part => Err(Error::Refused {
                program: process.program,
                status: 0,
                line: None,
                message: "it ended before it had read the whole document".into(),
            }),
            result => result.map_err(|error| self.explained(error)),
        }
    }

    /// Finds out why a table could not be opened: what restores does not always
    /// tell, what saves does.
    fn explained(&mut self, error: Error) -> Error {
        let table = error
            .line()
            .and_then(|line| line.text.as_deref()?.strip_prefix('*'))
            .and_then(|table| TableName::new(table).ok());
        let Some(table) = table else { return error };
        let saved = self.save_lines(table, |_| Ok::<(), Error>(()));
        saved.err().unwrap_or(error)
    }
}

/// Writes a document to a program while it is printed.
struct Feed<'a> {
    process: &'a mut Process,
    /// What is still to be written, at most a chunk.
    pending: Vec<u8>,
    wrote: Result<Wrote, Error>,
}

impl Feed<'_> {
    /// Writes what is pending; fails if that cannot be.
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

fn ask_version(path: &Path) -> Result<(Version, Variant), Error> {
    let (input, output) = (Stdio::null(), Stdio::piped());
    let mut process = Process::start(path, &["--version"], input, output, TIMEOUT)?;
    process.finish()?;
    let ended = process.conclude(0, |_| None);
    let answer = String::from_utf8_lossy(&process.output);
    match (ended, Version::parse(&answer)) {
        (Ok(()), Some((version, variant))) if version >= Version::MINIMUM => Ok((version, variant)),
        (Ok(()) | Err(Error::Refused { .. }), _) => Err(Error::Outdated {
            program: process.program,
            answer: answer.trim().into(),
        }),
        (Err(error), _) => Err(error),
    }
}

/// Tells whether a line is said in place of a table that only `nft` can list.
fn is_incompatible(line: &str) -> bool {
    line.starts_with("# Table `") && line.ends_with("' is incompatible, use 'nft' tool.")
}
