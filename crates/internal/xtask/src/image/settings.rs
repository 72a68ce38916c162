//! Configuration of an image: user, arguments, labels, names and time.

use std::env;
use std::env::consts::ARCH;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::cargo::root;

/// User and group of the DaemonSet of mode nftables.
const USER: &str = "65532:65532";

/// The lock file of iptables belongs to root.
const ROOT: &str = "0:0";

/// Path of the program, as in the manifests and README files.
pub(super) const PROGRAM: &str = "/kube-proxy";

/// Configuration file of the manifests: the default argument.
const CONFIG: &str = "--config=/etc/kube-proxy/config.conf";

/// Settings of an image.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Architecture, in Go's words: `amd64`.
    pub(super) architecture: &'static str,
    /// Name of the image, with a tag after the last colon.
    pub(super) name: String,
    /// Whether the image has the programs of iptables.
    pub(super) has_iptables: bool,
    /// Version of Vipline.
    pub(super) version: String,
    /// Commit, with the suffix `-dirty` if files differ from it. Unknown outside of a
    /// repository.
    pub(super) revision: Option<String>,
    /// Time of all files, in seconds since 1970.
    pub(super) time: u64,
}

impl Settings {
    /// Creates settings with the time of `SOURCE_DATE_EPOCH`, otherwise of the commit.
    ///
    /// # Errors
    ///
    /// If the name has no tag, the architecture is not supported, or
    /// `SOURCE_DATE_EPOCH` is not a number.
    pub(super) fn new(name: String, version: String, has_iptables: bool) -> Result<Self> {
        let architecture = match ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => bail!("images for {other} are not supported"),
        };
        if tag(&name).is_none() {
            bail!("{name}: the name of an image ends in `:` and a tag");
        }
        Ok(Self {
            architecture,
            name,
            has_iptables,
            version,
            revision: git(&[
                "describe",
                "--always",
                "--dirty",
                "--abbrev=40",
                "--exclude=*",
            ]),
            time: time()?,
        })
    }

    /// Returns the time in RFC 3339 format.
    pub(super) fn created(&self) -> String {
        let (days, seconds) = (self.time / 86400, self.time % 86400);
        let (year, month, day) = date(days);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }

    /// Returns the execution parameters of the image configuration.
    pub(super) fn execution(&self) -> Value {
        json!({
            "User": if self.has_iptables { ROOT } else { USER },
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "Entrypoint": [PROGRAM],
            "Cmd": [CONFIG],
            "WorkingDir": "/",
            "Labels": self.labels(),
        })
    }

    /// Returns the labels, which are annotations of the manifest, too.
    pub(super) fn labels(&self) -> Value {
        let repository = env!("CARGO_PKG_REPOSITORY");
        let mut labels = json!({
            "org.opencontainers.image.created": self.created(),
            "org.opencontainers.image.description": self.description(),
            "org.opencontainers.image.documentation":
                format!("{repository}/blob/main/examples/kube-proxy/README.md"),
            "org.opencontainers.image.source": repository,
            "org.opencontainers.image.title": "kube-proxy",
            "org.opencontainers.image.vendor": "Vipline",
            "org.opencontainers.image.version": self.version,
        });
        if let Some(revision) = &self.revision {
            labels["org.opencontainers.image.revision"] = json!(revision);
        }
        // The programs of iptables have other licenses.
        if !self.has_iptables {
            labels["org.opencontainers.image.licenses"] = json!(env!("CARGO_PKG_LICENSE"));
        }
        labels
    }

    /// Returns the annotations from which `podman load`, `docker load` and
    /// `ctr image import` take the name of the image.
    pub(super) fn names(&self) -> Value {
        json!({
            "io.containerd.image.name": self.name,
            "org.opencontainers.image.ref.name": tag(&self.name),
        })
    }

    fn description(&self) -> &'static str {
        match self.has_iptables {
            true => "kube-proxy with the programs of iptables",
            false => "kube-proxy without the programs of iptables",
        }
    }
}

/// Returns the tag of a name. A colon before the last slash precedes a port.
fn tag(name: &str) -> Option<&str> {
    let (_, tag) = name.rsplit_once(':')?;
    (!tag.is_empty() && !tag.contains('/')).then_some(tag)
}

/// Returns the time of `SOURCE_DATE_EPOCH`, otherwise of the commit, otherwise 0.
fn time() -> Result<u64> {
    let text = match env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => git(&["log", "-1", "--format=%ct"]).unwrap_or_else(|| "0".to_owned()),
    };
    let parsed = text.parse();
    parsed.with_context(|| format!("SOURCE_DATE_EPOCH: not a number of seconds: {text:?}"))
}

/// Runs git in the repository. Returns nothing if git fails, as outside of a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    let output = command.args(arguments).current_dir(root()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}

/// Converts days since 1970 to year, month and day of the Gregorian calendar.
fn date(days: u64) -> (u64, u64, u64) {
    // Years begin in March, so that the leap day is the last day of a year. An era has
    // 400 years; 719,468 days lie between 0000-03-01 and 1970-01-01.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = year + 400 * era;
    match month {
        0..10 => (year, month + 3, day),
        _ => (year + 1, month - 9, day),
    }
}

#[cfg(test)]
impl Settings {
    /// Settings of a fixed image.
    pub(super) fn example() -> Self {
        Self {
            architecture: "amd64",
            name: "registry.example:5000/kube-proxy:v1".to_owned(),
            has_iptables: false,
            version: "1.2.3".to_owned(),
            revision: Some("abc".to_owned()),
            time: 1_000_000_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::image::pod::Pod;

    #[test]
    fn times_are_formatted_as_by_date() {
        for (time, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            let settings = Settings {
                time,
                ..Settings::example()
            };
            assert_eq!(settings.created(), expected);
        }
    }

    #[test]
    fn the_labels_are_those_of_the_specification() {
        let labels = Settings::example().labels();
        for (label, value) in [
            ("created", "2001-09-09T01:46:40Z"),
            ("licenses", "Apache-2.0"),
            ("revision", "abc"),
            ("title", "kube-proxy"),
            ("version", "1.2.3"),
        ] {
            let key = format!("org.opencontainers.image.{label}");
            assert_eq!(labels[&key], value, "{key}");
        }
        for value in labels.as_object().unwrap().values() {
            assert_ne!(value, "");
        }
    }

    #[test]
    fn a_name_has_a_tag() {
        assert_eq!(tag("registry.example:5000/kube-proxy:v1"), Some("v1"));
        for name in [
            "kube-proxy",
            "registry.example:5000/kube-proxy",
            "kube-proxy:",
        ] {
            assert_eq!(tag(name), None);
            assert!(Settings::new(name.to_owned(), String::new(), false).is_err());
        }
        let names = Settings::example().names();
        assert_eq!(names["io.containerd.image.name"], Settings::example().name);
        assert_eq!(names["org.opencontainers.image.ref.name"], "v1");
    }

    #[test]
    fn user_and_arguments_are_those_of_the_daemon_sets() {
        for (file, has_iptables) in [
            ("daemonset.yaml", false),
            ("iptables/daemonset.yaml", true),
            ("ipvs/daemonset.yaml", true),
        ] {
            let pod = Pod::read(file).unwrap();
            let settings = Settings {
                has_iptables,
                ..Settings::example()
            };
            let execution = settings.execution();
            let context = &pod.security_context;
            let user = format!("{}:{}", context.run_as_user, context.run_as_group);
            assert_eq!(execution["User"], user, "{file}");
            for container in pod.containers.iter().chain(&pod.init_containers) {
                assert_eq!(execution["Cmd"][0], container.args[0], "{file}");
            }
        }
        let path = root().join("examples/kube-proxy/deploy/README.md");
        assert!(!fs::read_to_string(path).unwrap().contains("docker build"));
    }
}
