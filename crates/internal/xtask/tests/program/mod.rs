//! Locates the kube-proxy binary.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::{env, str};

/// Returns the path in `KUBE_PROXY`. Otherwise builds kube-proxy and returns its path.
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(program) = env::var_os("KUBE_PROXY") {
            return program.into();
        }
        let output = Command::new(env!("CARGO"))
            .args([
                "build",
                "--package",
                "kube-proxy",
                "--message-format",
                "json",
            ])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(output.status.success(), "kube-proxy does not build");
        str::from_utf8(&output.stdout)
            .unwrap()
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)))
            .expect("cargo prints the path of the program")
    })
}
