//! The bands of ranges, and tables of bands and allocated items.

use std::fmt::Display;
use std::io::{self, Write};

use anyhow::Result;
use vipline_service_ip::{AddressRange, Allocator, Cidrs, Pool, Range, Registry, Store};

/// A part of a range.
pub(crate) struct Band {
    name: &'static str,
    from: String,
    to: String,
    len: u128,
    used: u128,
}

/// A pool with bands.
pub(crate) trait Bands {
    /// Returns the bands of all ranges, with the number of allocated items.
    fn bands(&self) -> Vec<(String, [Band; 2])>;
}

impl<R: Range> Bands for Allocator<R> {
    fn bands(&self) -> Vec<(String, [Band; 2])> {
        vec![(self.range().to_string(), split(self.range(), self.items()))]
    }
}

impl Bands for Cidrs {
    fn bands(&self) -> Vec<(String, [Band; 2])> {
        let label = |range: AddressRange| {
            let names = self.names(range).map(|(name, is_ready)| match is_ready {
                true => name.to_owned(),
                false => format!("{name} not ready"),
            });
            format!("{range} ({})", names.collect::<Vec<_>>().join(", "))
        };
        self.ranges()
            .map(|(range, _)| (label(range), split(&range, self.items())))
            .collect()
    }
}

/// Returns both bands of a range with the allocated items in each.
fn split<R: Range>(range: &R, taken: impl Iterator<Item = R::Item>) -> [Band; 2] {
    let (lower, len) = (range.static_band(), range.len());
    let band = |name, from: u128, to: u128| {
        let text = |number| range.item(number).map(|item| item.to_string());
        Band {
            name,
            from: text(from).unwrap_or_default(),
            to: to.checked_sub(1).and_then(text).unwrap_or_default(),
            len: to.saturating_sub(from),
            used: 0,
        }
    };
    let mut bands = [band("lower", 0, lower), band("upper", lower, len)];
    for number in taken.filter_map(|item| range.number(item).ok()) {
        bands[usize::from(number >= lower)].used += 1;
    }
    bands
}

/// Prints the bands, and the allocated items with their owners.
pub(crate) fn show<P, S>(
    registry: &mut Registry<P, S>,
    limit: usize,
    output: &mut dyn Write,
) -> Result<()>
where
    P: Pool + Bands,
    S: Store<P>,
{
    let snapshot = registry.refresh()?;
    let head = "RANGE BAND FROM TO ITEMS USED FREE %";
    let mut rows = vec![head.split(' ').map(str::to_owned).collect()];
    for (range, bands) in snapshot.pool.bands() {
        for band in bands.iter().filter(|band| band.len > 0) {
            let (used, free) = (band.used, band.len - band.used);
            let percent = used as f64 * 100.0 / band.len as f64;
            let cells: [&dyn Display; 7] = [
                &range, &band.name, &band.from, &band.to, &band.len, &used, &free,
            ];
            let mut row = cells.map(ToString::to_string).to_vec();
            row.push(format!("{percent:.1}"));
            rows.push(row);
        }
    }
    table(&rows, output)?;
    let items: Vec<P::Item> = snapshot.pool.items().collect();
    if items.is_empty() {
        return Ok(());
    }
    let mut rows = vec![["ITEM", "SERVICE"].map(str::to_owned).to_vec()];
    for item in items.iter().take(limit) {
        let owner = snapshot.owners.get(item);
        let owner = owner.map_or_else(|| "?".to_owned(), ToString::to_string);
        rows.push(vec![item.to_string(), owner]);
    }
    writeln!(output)?;
    table(&rows, output)?;
    if items.len() > limit {
        writeln!(output, "and {} more", items.len() - limit)?;
    }
    Ok(())
}

/// Prints rows in columns.
fn table(rows: &[Vec<String>], output: &mut dyn Write) -> io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(String::len).max().unwrap_or_default()
        })
        .collect();
    for row in rows {
        let cells = row.iter().zip(&widths);
        let line: String = cells
            .map(|(cell, width)| format!("{cell:<width$}  "))
            .collect();
        writeln!(output, "{}", line.trim_end())?;
    }
    Ok(())
}
