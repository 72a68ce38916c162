//! Figures of allocation, compared with a plain bitmap that is scanned bit by bit.
//!
//! Rounds alternate. Both allocators are called in the same way with the same random
//! numbers, and must return the same addresses.
//! Each figure is the tenth percentile of the rounds, on which other processes have
//! little influence.

use std::error::Error;
use std::hint::black_box;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use benches::figure::{Figures, conclude, percentile};
use vipline_service_ip::{AddressRange, AllocationError, Allocator, Pool, Random, Range};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Range and its title.
const RANGE: &str = "10.96.0.0/16";
const SIZE: &str = "/16";

/// Number of rounds, and number of allocations per round.
const QUICK: (usize, usize) = (20_001, 256);

/// Same for slow cases.
const SLOW: (usize, usize) = (51, 64);

/// Limit of the ratio of times at 99 % full.
const FULL_LIMIT: f64 = 0.1;

/// Limit of the ratio of times in an empty range.
const EMPTY_LIMIT: f64 = 1.0;

/// Limit of the ratio of times with a full dynamic band.
const BAND_LIMIT: f64 = 0.01;

fn main() -> ExitCode {
    conclude(figures())
}

/// Measures all figures, and returns the number of exceeded limits.
fn figures() -> Outcome<usize> {
    let mut figures = Figures::new()?;
    let mut push = |state: &str, (ours, plain): (f64, f64), limit: f64| {
        let measure = format!("service-ip: {state}");
        let floor = format!("{measure}, bit by bit");
        figures.push(&floor, SIZE, (plain, "ns"), None)?;
        figures.push(&measure, SIZE, (ours, "ns"), None)?;
        figures.push(&measure, SIZE, (ours / plain, "x bit by bit"), limit)
    };
    let mut pair = Pair::new()?;
    let (lower, len) = (pair.plain.lower, pair.plain.len);
    push("allocate, empty", pair.rounds(QUICK)?, EMPTY_LIMIT)?;
    pair.allocate(len * 99 / 100)?;
    push("allocate, 99 % full", pair.rounds(SLOW)?, FULL_LIMIT)?;
    pair.allocate(len - pair.plain.count)?;
    pair.free_any(len / 100)?;
    let any = pair.rounds(QUICK)?;
    push("allocate, any 99 % taken", any, FULL_LIMIT)?;
    pair.free_all()?;
    pair.allocate(len - lower)?;
    let full = pair.rounds(SLOW)?;
    push("allocate, dynamic band full", full, BAND_LIMIT)?;
    Ok(figures.finish("service_ip")?)
}

/// Both allocators, with the same allocated addresses.
struct Pair {
    ours: Allocator<AddressRange>,
    plain: Plain,
    random: Numbers,
}

impl Pair {
    fn new() -> Outcome<Self> {
        let range: AddressRange = RANGE.parse()?;
        Ok(Self {
            ours: Allocator::new(range),
            plain: Plain::new(range)?,
            random: Numbers(0x9e37_79b9_7f4a_7c15),
        })
    }

    /// Allocates addresses from both; returns the addresses and both times.
    fn allocate(&mut self, count: usize) -> Outcome<(Vec<IpAddr>, [Duration; 2])> {
        let mut random = self.random;
        let (plain, theirs) = timed(&mut self.plain, Plain::allocate, count, &mut random)?;
        let random = &mut self.random;
        let (given, ours) = timed(&mut self.ours, Pool::allocate, count, random)?;
        if given != plain {
            return Err("they do not give the same addresses".into());
        }
        Ok((given, [ours, theirs]))
    }

    fn free(&mut self, addresses: &[IpAddr]) -> Outcome<()> {
        for address in addresses {
            if !self.ours.release(*address) || !self.plain.release(*address) {
                return Err(format!("{address} was taken").into());
            }
        }
        Ok(())
    }

    fn free_all(&mut self) -> Outcome<()> {
        let taken: Vec<IpAddr> = self.ours.items().collect();
        self.free(&taken)
    }

    /// Releases addresses of the full dynamic band.
    fn free_any(&mut self, count: usize) -> Outcome<()> {
        let (lower, len) = (self.plain.lower, self.plain.len);
        for _ in 0..count {
            let random = &mut || self.random.next();
            let any = || lower + below(len - lower, random);
            let mut taken = std::iter::repeat_with(any).filter(|any| self.plain.contains(*any));
            let number = taken.next().ok_or("numbers do not end")?;
            drop(taken);
            let address = self.plain.address(number);
            self.free(&[address.ok_or("the number has an address")?])?;
        }
        Ok(())
    }

    /// Returns the nanoseconds per allocation of the registry and of the bitmap.
    ///
    /// Releases the addresses after each round.
    fn rounds(&mut self, (rounds, count): (usize, usize)) -> Outcome<(f64, f64)> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let (given, times) = self.allocate(count)?;
            ours.push(times[0]);
            theirs.push(times[1]);
            self.free(&given)?;
        }
        let one = |times: &[Duration]| percentile(times, 10).as_secs_f64() * 1e9 / count as f64;
        Ok((one(&ours), one(&theirs)))
    }
}

/// Function type of both allocators, so that neither is inlined.
type Ask<P> = fn(&mut P, &mut Random<'_>) -> Result<IpAddr, AllocationError>;

/// Allocates addresses, and returns the elapsed time.
fn timed<P>(
    pool: &mut P,
    ask: Ask<P>,
    count: usize,
    numbers: &mut Numbers,
) -> Outcome<(Vec<IpAddr>, Duration)> {
    let mut given = Vec::with_capacity(count);
    let ask = black_box(ask);
    let start = Instant::now();
    for _ in 0..count {
        given.push(ask(pool, &mut || numbers.next())?);
    }
    Ok((given, start.elapsed()))
}

/// A bitmap that is scanned bit by bit from a random offset, as in Kubernetes.
struct Plain {
    words: Vec<u64>,
    count: usize,
    len: usize,
    /// Number of addresses in the static band.
    lower: usize,
    /// Converts numbers to addresses, as ours.
    range: AddressRange,
}

impl Plain {
    fn new(range: AddressRange) -> Outcome<Self> {
        let len = usize::try_from(range.len())?;
        Ok(Self {
            words: vec![0; len.div_ceil(64)],
            count: 0,
            len,
            lower: usize::try_from(range.static_band())?,
            range,
        })
    }

    fn allocate(&mut self, random: &mut Random<'_>) -> Result<IpAddr, AllocationError> {
        let full = || AllocationError::Full {
            range: RANGE.into(),
        };
        if self.count >= self.len {
            return Err(full());
        }
        let upper = self.scan(self.lower, self.len, random);
        let number = upper.or_else(|| self.scan(0, self.lower, random));
        let number = number.ok_or_else(full)?;
        self.words[number / 64] |= 1 << (number % 64);
        self.count += 1;
        self.address(number).ok_or_else(full)
    }

    fn scan(&self, from: usize, to: usize, random: &mut Random<'_>) -> Option<usize> {
        let size = to - from;
        let start = below(size, random);
        let mut numbers = (0..size).map(|step| from + (start + step) % size);
        numbers.find(|number| !self.contains(*number))
    }

    fn release(&mut self, address: IpAddr) -> bool {
        let Ok(number) = self.range.number(address) else {
            return false;
        };
        let number = number as usize;
        let was_taken = self.contains(number);
        self.words[number / 64] &= !(1 << (number % 64));
        self.count -= usize::from(was_taken);
        was_taken
    }

    fn contains(&self, number: usize) -> bool {
        self.words[number / 64] >> (number % 64) & 1 == 1
    }

    fn address(&self, number: usize) -> Option<IpAddr> {
        self.range.item(number as u128)
    }
}

/// Function that returns a random number below a limit.
fn below(limit: usize, random: &mut Random<'_>) -> usize {
    ((u128::from(random()) * limit as u128) >> 64) as usize
}

/// Pseudorandom number generator (xorshift64*).
#[derive(Clone, Copy)]
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}
