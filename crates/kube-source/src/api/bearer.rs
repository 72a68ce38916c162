//! The bearer token of requests: fixed, or from a file that another program renews.
#![allow(clippy::disallowed_methods, reason = "IO file")]

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::header::HeaderValue;

/// Interval between reads of the file.
///
/// The kubelet renews a token when 80 % of its lifetime are over, and the lifetime is ten
/// minutes at least. client-go reads at the same interval.
const READ_INTERVAL: Duration = Duration::from_secs(50);

/// A token as a header of requests.
pub(crate) struct Bearer {
    file: Option<PathBuf>,
    state: Mutex<State>,
}

struct State {
    header: HeaderValue,
    read: Instant,
}

/// Without the token.
impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bearer").field("file", &self.file).finish()
    }
}

impl Bearer {
    /// Creates a token from `token`, `file` or both. The file takes precedence as long as
    /// it can be read.
    ///
    /// White space around a token is removed: `echo` and every editor end a file with a
    /// line break, which no header may contain.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or the token is empty or no value of a header. The text
    /// has no part of the token.
    pub(crate) fn open(token: Option<&str>, file: Option<PathBuf>) -> Result<Option<Self>, String> {
        let header = match (&file, token) {
            (None, None) => return Ok(None),
            (None, Some(token)) => header(token).map_err(|reason| format!("token: {reason}"))?,
            (Some(file), None) => read(file)?,
            (Some(file), Some(token)) => read(file)
                .or_else(|_| header(token).map_err(|reason| format!("token: {reason}")))?,
        };
        let state = State {
            header,
            read: Instant::now(),
        };
        Ok(Some(Self {
            file,
            state: Mutex::new(state),
        }))
    }

    /// Returns the value of the header `Authorization`. Reads the file again if the last
    /// read was long ago; if that fails, the former token stays in use.
    pub(crate) fn header(&self) -> HeaderValue {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &self.file
            && state.read.elapsed() >= READ_INTERVAL
        {
            state.read = Instant::now();
            if let Ok(header) = read(file) {
                state.header = header;
            }
        }
        state.header.clone()
    }
}

fn read(file: &PathBuf) -> Result<HeaderValue, String> {
    let named = |reason: &dyn fmt::Display| format!("tokenFile {}: {reason}", file.display());
    let token = fs::read_to_string(file).map_err(|error| named(&error))?;
    header(&token).map_err(|reason| named(&reason))
}

fn header(token: &str) -> Result<HeaderValue, &'static str> {
    let token = token.trim();
    if token.is_empty() {
        return Err("the token is empty");
    }
    let header = HeaderValue::try_from(format!("Bearer {token}"));
    let mut header = header.map_err(|_| "the token contains a line break or control character")?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use testkit::scoped::Directory;

    use super::*;

    fn value(bearer: &Bearer) -> String {
        bearer.header().to_str().unwrap().to_owned()
    }

    #[test]
    fn white_space_around_a_token_is_removed() {
        let folder = Directory::new().unwrap();
        let file = folder.path().join("token");
        for text in ["abc", "abc\n", "abc\r\n", "\u{2003} abc \n\n", "abc\t"] {
            fs::write(&file, text).unwrap();
            let of_file = Bearer::open(None, Some(file.clone())).unwrap().unwrap();
            assert_eq!(value(&of_file), "Bearer abc", "{text:?}");
            let inline = Bearer::open(Some(text), None).unwrap().unwrap();
            assert_eq!(value(&inline), "Bearer abc", "{text:?}");
        }
        assert!(Bearer::open(None, None).unwrap().is_none());
    }

    #[test]
    fn a_token_that_no_header_can_have_is_an_error_without_the_token() {
        let folder = Directory::new().unwrap();
        let file = folder.path().join("token");
        for (text, expected) in [
            ("", "the token is empty"),
            (" \r\n", "the token is empty"),
            (
                "se\ncret",
                "the token contains a line break or control character",
            ),
        ] {
            fs::write(&file, text).unwrap();
            let shown = Bearer::open(None, Some(file.clone())).unwrap_err();
            assert_eq!(shown, format!("tokenFile {}: {expected}", file.display()));
            let shown = Bearer::open(Some(text), None).unwrap_err();
            assert_eq!(shown, format!("token: {expected}"));
        }
        let missing = Bearer::open(None, Some(folder.path().join("none"))).unwrap_err();
        assert!(missing.contains("none: No such file"), "{missing}");
    }

    #[test]
    fn the_file_takes_precedence_and_is_read_again() {
        let folder = Directory::new().unwrap();
        let file = folder.path().join("token");
        let open = || {
            Bearer::open(Some("inline"), Some(file.clone()))
                .unwrap()
                .unwrap()
        };
        assert_eq!(value(&open()), "Bearer inline");
        fs::write(&file, "first\n").unwrap();
        let bearer = open();
        assert_eq!(value(&bearer), "Bearer first");
        for (text, expected) in [("next\n", "Bearer next"), ("\n", "Bearer next")] {
            fs::write(&file, text).unwrap();
            let ago = Instant::now().checked_sub(READ_INTERVAL).unwrap();
            bearer.state.lock().unwrap().read = ago;
            assert_eq!(value(&bearer), expected);
        }
    }
}
