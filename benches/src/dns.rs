//! DNS messages, and an upstream name server.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Length of a message header.
const HEADER: usize = 12;

/// Interval in which a name server checks whether it must stop.
const TICK: Duration = Duration::from_millis(100);

/// Returns a question of type A. The name must consist of labels of at most 63 bytes.
pub fn question(name: &str) -> Vec<u8> {
    // ID 1, recursion desired, one question.
    let mut message = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).unwrap_or_default());
        message.extend(label.as_bytes());
    }
    // Root, type A, class IN.
    message.extend([0, 0, 1, 0, 1]);
    message
}

/// A name server in a thread, which answers every question with one address and a time to
/// live of one hour. Stops when dropped.
#[derive(Debug)]
pub struct Upstream {
    questions: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Upstream {
    /// Starts a name server in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub fn start(addr: (Ipv4Addr, u16)) -> io::Result<Self> {
        let socket = UdpSocket::bind(addr)?;
        socket.set_read_timeout(Some(TICK))?;
        let questions = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (counter, stopped) = (Arc::clone(&questions), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let mut message = [0; 512];
            while !stopped.load(Ordering::Relaxed) {
                let Ok((length, client)) = socket.recv_from(&mut message) else {
                    continue;
                };
                counter.fetch_add(1, Ordering::Relaxed);
                if let Some(answer) = answer(&message[..length]) {
                    let _ = socket.send_to(&answer, client);
                }
            }
        });
        Ok(Self {
            questions,
            stop,
            thread: Some(thread),
        })
    }

    /// Returns the number of received questions.
    pub fn questions(&self) -> usize {
        self.questions.load(Ordering::Relaxed)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the answer to a message, without records other than that of the answer.
fn answer(message: &[u8]) -> Option<Vec<u8>> {
    let mut end = HEADER;
    loop {
        let length = usize::from(*message.get(end)?);
        end += 1 + length;
        if length == 0 {
            break;
        }
    }
    let question = message.get(HEADER..end + 4)?;
    let mut answer = message.get(..2)?.to_vec();
    // Response, recursion desired and available; one question and one answer.
    answer.extend([0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
    answer.extend(question);
    // Name at offset 12, type A, class IN, one hour, four bytes.
    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0x0e, 0x10, 0, 4]);
    answer.extend([192, 0, 2, 1]);
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upstream_server_answers_and_counts_questions() {
        let addr = (Ipv4Addr::LOCALHOST, 0);
        let client = UdpSocket::bind(addr).unwrap();
        let free = UdpSocket::bind(addr).unwrap().local_addr().unwrap().port();
        let upstream = Upstream::start((Ipv4Addr::LOCALHOST, free)).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        client.connect((Ipv4Addr::LOCALHOST, free)).unwrap();
        let question = question("host-1.example.com");
        client.send(&question).unwrap();
        let mut message = [0; 512];
        let length = client.recv(&mut message).unwrap();
        let answer = &message[..length];
        assert_eq!(answer[HEADER..question.len()], question[HEADER..]);
        assert!(answer.ends_with(&[0, 4, 192, 0, 2, 1]));
        assert_eq!(upstream.questions(), 1);
    }
}
