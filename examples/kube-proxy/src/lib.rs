//! A complete kube-proxy made of the Vipline crates.
//!
//! The library is the program in parts; it is published nowhere.
//!
//! - [`cli`]: flags as upstream has them; [`settings`]: what they mean, checked;
//! - [`manifests`]: objects from files, watched;
//! - [`setup`]: engine and manifests brought together;
//! - [`run`], [`oneshot`], [`render`], [`diff`]: what the program does.
#![forbid(unsafe_code)]

pub mod cli;

pub mod duration;

pub mod settings;

pub mod manifests;

pub mod interfaces;

pub mod node;

pub mod setup;

pub mod run;

pub mod signals;

pub mod wait;

pub mod oneshot;

pub mod render;

pub mod diff;

pub mod output;

pub mod logging;

pub mod failure;

use std::process::ExitCode;

use tracing::error;

use cli::{Cli, Command};
use failure::Failure;
use settings::Settings;

/// Does what the command line says.
pub fn start(cli: &Cli) -> ExitCode {
    logging::start(cli.flags.logging_format, cli.flags.v);
    match obey(cli) {
        Ok(code) => code,
        Err(failure) => {
            for line in failure.to_string().lines() {
                error!("{line}");
            }
            match cli.command {
                // There 1 means that something differs.
                Some(Command::Diff) => ExitCode::from(2),
                _ => failure.code(),
            }
        }
    }
}

fn obey(cli: &Cli) -> Result<ExitCode, Failure> {
    let settings = Settings::new(&cli.flags, &interfaces::hostname())?;
    match (cli.command, cli.oneshot) {
        (Some(Command::Render), false) => render::render(&settings).map(|()| ExitCode::SUCCESS),
        (Some(Command::Diff), false) => diff::diff(settings),
        (Some(_), true) => Err(Failure::input("--oneshot: not with a command")),
        (None, true) => oneshot::oneshot(settings, cli.output),
        (None, false) => run::run(settings).map(|()| ExitCode::SUCCESS),
    }
}
