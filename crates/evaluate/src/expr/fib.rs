//! `fib`

use vipline_nftables::expr::{AddrType, Fib, FibFlags, FibResult};
use vipline_nftables::{Hook, Value};

use super::meta::name;
use crate::cause::Cause;
use crate::environment::{Route, RouteQuery};
use crate::interface::Interface;
use crate::walk::{Flow, Walk};

/// The name of the loopback interface.
const LOOPBACK: &str = "lo";

pub(super) fn evaluate(walk: &mut Walk<'_>, fib: &Fib) -> Result<Flow, Cause> {
    match fib.result {
        FibResult::AddrType => {
            let kind = addr_type(walk, fib)?;
            let Value::Integer(number) = Value::from(kind) else {
                return Err(Cause::Operand);
            };
            let number = u32::try_from(number).map_err(|_| Cause::Operand)?;
            walk.registers.write_u32(fib.destination, number)?;
        }
        FibResult::Oif | FibResult::Oifname => {
            let found = interface(walk, fib)?;
            store(walk, fib, found.as_ref())?;
        }
    }
    Ok(Flow::Next)
}

fn device<'w>(walk: &'w Walk<'_>, fib: &Fib) -> Option<&'w Interface> {
    match () {
        () if fib.flags.contains(FibFlags::OIF) => walk.place.output.as_ref(),
        () if fib.flags.contains(FibFlags::IIF) => walk.place.input.as_ref(),
        () => None,
    }
}

fn addr_type(walk: &Walk<'_>, fib: &Fib) -> Result<AddrType, Cause> {
    let addr = match fib.flags.contains(FibFlags::DADDR) {
        true => walk.packet.destination(),
        false => walk.packet.source(),
    };
    let unknown = || Cause::unknown(format_args!("type of address {addr}"));
    let answer = walk.environment.addr_type(addr, device(walk, fib));
    answer.ok_or_else(unknown)
}

/// Returns the interface of the route to the address.
///
/// With an interface as key, the route must lead through it.
fn interface(walk: &Walk<'_>, fib: &Fib) -> Result<Option<Interface>, Cause> {
    let input = walk.place.input.as_ref();
    let is_loopback = input.is_some_and(|it| it.name == LOOPBACK);
    if walk.place.hook == Hook::Prerouting && is_loopback {
        return Ok(input.cloned());
    }
    let (source, destination) = (walk.packet.source(), walk.packet.destination());
    let is_reverse = !fib.flags.contains(FibFlags::DADDR);
    let query = RouteQuery {
        destination: if is_reverse { source } else { destination },
        source: if is_reverse { destination } else { source },
        mark: match fib.flags.contains(FibFlags::MARK) {
            true => walk.packet.mark,
            false => 0,
        },
        input: None,
    };
    let unknown = || Cause::unknown(format_args!("route to {}", query.destination));
    let route = walk.environment.route(&query).ok_or_else(unknown)?;
    let Route::Interface(found) = route else {
        return Ok(None);
    };
    let wanted = device(walk, fib);
    Ok(Some(found).filter(|it| wanted.is_none_or(|wanted| wanted.name == it.name)))
}

fn store(walk: &mut Walk<'_>, fib: &Fib, found: Option<&Interface>) -> Result<(), Cause> {
    if fib.flags.contains(FibFlags::PRESENT) {
        let is_present = [u8::from(found.is_some())];
        return walk.registers.write(fib.destination, &is_present);
    }
    if fib.result == FibResult::Oifname {
        let text = found.map_or("", |it| &it.name);
        return walk.registers.write(fib.destination, &name(text));
    }
    let unknown = || Cause::unknown("index of the interface");
    let index = found.map_or(Some(0), |it| it.index).ok_or_else(unknown)?;
    walk.registers.write_u32(fib.destination, index)
}
