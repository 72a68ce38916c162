//! `/debug/explain`: explanations by the running proxy.
//!
//! The thread of the engine finds the service port and plans its rules alone, which is
//! cheap. The thread of the request reads the kernel and evaluates both. One request runs at
//! a time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::ValueEnum;
use daemon::http::{PLAIN, Response, text};
use proxy_core::{Config, Engine};
use tokio::task::block_in_place;
use vipline_kube_source::api::feed;

use super::observed::Observed;
use super::show;
use super::subject::{Inquirer, Prepared};
use crate::cli::{Format, Subject, What, subject};

/// Time until the thread of the engine must respond. A sync may take longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Work for the thread of the engine.
type Job = Box<dyn FnOnce(&Engine) + Send>;

/// Asks the thread of the engine.
#[derive(Clone, Debug)]
pub struct Questioner(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Also limits requests to one at a time.
    jobs: Mutex<SyncSender<Job>>,
    /// Wakes the thread of the engine.
    engine: feed::Sender,
    config: Config,
}

/// Questions for the thread of the engine.
#[derive(Debug)]
pub struct Inbox(Receiver<Job>);

/// Creates both ends. A question wakes the thread that receives from `engine`.
pub fn channel(config: Config, engine: feed::Sender) -> (Questioner, Inbox) {
    let (sender, jobs) = mpsc::sync_channel(1);
    let shared = Shared {
        jobs: Mutex::new(sender),
        engine,
        config,
    };
    (Questioner(Arc::new(shared)), Inbox(jobs))
}

impl Inbox {
    /// Answers at most one question.
    pub fn poll(&self, engine: &Engine) {
        if let Ok(job) = self.0.try_recv() {
            job(engine);
        }
    }
}

impl Questioner {
    /// Responds to a request with this query.
    pub fn answer(&self, query: &str) -> Response {
        let plain = |code, line: String| text(code, PLAIN, line + "\n");
        let question = match Question::parse(query) {
            Ok(question) => question,
            Err(reason) => return plain(400, format!("{reason}\n{USAGE}")),
        };
        let Ok(jobs) = self.0.jobs.try_lock() else {
            return plain(503, "another explanation is running".to_owned());
        };
        // Other connections of this thread are served meanwhile.
        match block_in_place(|| self.explain(&jobs, question)) {
            Ok(response) => response,
            Err((code, reason)) => plain(code, reason),
        }
    }

    fn explain(
        &self,
        jobs: &SyncSender<Job>,
        question: Question,
    ) -> Result<Response, (u16, String)> {
        let Question {
            subject,
            from,
            from_node,
            interface,
            format,
        } = question;
        let observed = Observed::read(&self.0.config).map_err(|error| (500, error))?;
        let host = observed.host.clone();
        let (reply, prepared) = mpsc::sync_channel::<Result<Prepared, String>>(1);
        let config = self.0.config.clone();
        let job: Job = Box::new(move |engine| {
            let inquirer = Inquirer {
                config,
                plans: BTreeMap::new(),
                from,
                from_node,
                interface,
            };
            // The request may have ended.
            let _ = reply.try_send(inquirer.prepare(engine, &host, &subject));
        });
        let busy = || (503, "the proxy is busy; try again".to_owned());
        jobs.try_send(job).map_err(|_| busy())?;
        self.0.engine.wake();
        let prepared = prepared.recv_timeout(PATIENCE).map_err(|_| busy())?;
        let prepared = prepared.map_err(|error| (404, error))?;
        let explanation = prepared.finish(&observed);
        let body = show(&explanation, format, false).map_err(|it| (500, it.to_string()))?;
        let kind = match format {
            Format::Json => "application/json",
            Format::Text | Format::Dot => PLAIN,
        };
        Ok(text(200, kind, body))
    }
}

/// Parameters of the page.
const USAGE: &str = "usage: /debug/explain?tcp=ADDRESS:PORT (or udp, sctp), or \
                     ?service=NAMESPACE/NAME; optional: from=ADDRESS or from-node, \
                     interface=NAME, output=text, json or dot";

/// A parsed query.
#[derive(Debug, PartialEq)]
struct Question {
    subject: Subject,
    from: Option<IpAddr>,
    from_node: bool,
    interface: Option<String>,
    format: Format,
}

impl Question {
    fn parse(query: &str) -> Result<Self, String> {
        let (mut found, mut from, mut from_node) = (None, None, false);
        let (mut format, mut interface) = (None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(value).ok_or_else(|| format!("invalid value of {name}"))?;
            match name {
                "from" => {
                    let addr = value.parse();
                    let addr = addr.map_err(|_| format!("invalid address {value:?}"))?;
                    once(&mut from, addr, "source address")?;
                }
                "from-node" => from_node = true,
                "interface" => once(&mut interface, value, "interface")?,
                "output" => once(&mut format, Format::from_str(&value, true)?, "output")?,
                _ => {
                    let what = What::from_str(name, true);
                    let what = what.map_err(|_| format!("unknown parameter {name:?}"))?;
                    once(&mut found, subject(what, &value)?, "destination")?;
                }
            }
        }
        if from.is_some() && from_node {
            return Err("from and from-node exclude each other".to_owned());
        }
        if interface.is_some() && from_node {
            return Err("interface and from-node exclude each other".to_owned());
        }
        Ok(Self {
            interface,
            subject: found.ok_or("no destination")?,
            from,
            from_node,
            format: format.unwrap_or(Format::Text),
        })
    }
}

/// Sets the value of a parameter that a query has at most once.
fn once<T>(place: &mut Option<T>, value: T, name: &str) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("more than one {name}")),
    }
}

/// Decodes percent-encoded bytes (RFC 3986, section 2.1).
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_have_the_words_of_the_command() {
        let question = Question::parse("tcp=%5Bfd00::10%5D:80&from=fd00::1&output=json").unwrap();
        let expected = subject(What::Tcp, "[fd00::10]:80").unwrap();
        assert_eq!(question.subject, expected);
        assert_eq!(question.from, "fd00::1".parse().ok());
        assert_eq!(question.format, Format::Json);
        let service = Question::parse("service=shop/web&from-node").unwrap();
        assert!(service.from_node);
        for wrong in [
            "",
            "tcp=web",
            "tcp=10.0.0.1:80&from=here",
            "tcp=10.0.0.1:80&from=10.0.0.2&from-node",
            "icmp=10.0.0.1",
            "service=%zz",
            "tcp=10.0.0.1:80&output=xml",
            "tcp=10.0.0.1:80&udp=10.0.0.1:53",
            "tcp=10.0.0.1:80&tcp=10.0.0.1:81",
            "tcp=10.0.0.1:80&service=shop/web",
            "tcp=10.0.0.1:80&from=10.0.0.2&from=10.0.0.3",
            "tcp=10.0.0.1:80&output=text&output=json",
        ] {
            assert!(Question::parse(wrong).is_err(), "{wrong}");
        }
    }
}
