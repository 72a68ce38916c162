//! Concurrent allocation.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::thread;

use vipline_service_ip::Error;

use crate::cluster::{Allocator, Cluster, owner, random};

const THREADS: u64 = 4;
const ROUNDS: usize = 40;

/// Number of addresses per thread. All threads together exceed the range.
const WANTED: usize = 4;

#[test]
fn no_address_is_allocated_twice() {
    let cluster = Cluster::with(&["10.0.0.0/28"]);
    let having = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (cluster, having) = (&cluster, &having);
            scope.spawn(move || {
                let allocated = allocate_and_release(cluster, number, having);
                // The other threads leave at least two addresses.
                assert!(allocated > 5, "{allocated}");
            });
        }
    });
    assert_eq!(cluster.addresses(), [], "all are released");
}

/// Allocates and releases at random. Returns the number of successful allocations.
fn allocate_and_release(
    cluster: &Cluster,
    number: u64,
    having: &Mutex<BTreeMap<IpAddr, u64>>,
) -> usize {
    let mut allocator = cluster.allocator();
    let mut random = random(number);
    let name = owner(&format!("s{number}"));
    let (mut mine, mut allocated) = (Vec::new(), 0);
    let release = |allocator: &mut Allocator, ip: IpAddr| {
        // Before the release: another thread may get the address at once.
        assert_eq!(having.lock().unwrap().remove(&ip), Some(number));
        assert!(allocator.release(ip, &name).unwrap());
    };
    for _ in 0..ROUNDS {
        if mine.len() < WANTED && !random().is_multiple_of(3) {
            match allocator.allocate(&name, &mut random) {
                Ok(ip) => {
                    let other = having.lock().unwrap().insert(ip, number);
                    assert_eq!(other, None, "{ip} is given twice");
                    mine.push(ip);
                    allocated += 1;
                }
                Err(Error::Allocation(error)) if error.is_full() && mine.len() > 1 => {}
                Err(error) => panic!("{error}"),
            }
        } else if let Some(ip) = mine.pop() {
            release(&mut allocator, ip);
        }
    }
    for ip in mine {
        release(&mut allocator, ip);
    }
    allocated
}
