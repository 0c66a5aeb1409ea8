//! The end of a closed file as other MCAP readers use it: whether it is as it was written, and what it says.

use std::io;

use flate2::Crc;
use mcap::records::op;

use super::chunk::RECORD_HEAD;
use super::raw::Fields;
use super::scan::{self, Bytes};

/// From the footer's start to its CRC.
const FOOTER: usize = RECORD_HEAD + 8 + 8;
/// How much is read at once.
const PIECE: usize = 1 << 20;

/// What the end of a file says of the rest.
#[derive(Debug)]
pub(super) struct Summary {
    /// How many chunks were written.
    pub(super) chunks: Option<u64>,
    /// Whether all of the data is as it was written, beside the chunks: what stands between them has no CRC of its own.
    pub(super) is_data_whole: bool,
}

impl Summary {
    /// Reads it; `None` where there is none, or it is not as it was written.
    pub(super) fn read(bytes: &mut Bytes) -> io::Result<Option<Self>> {
        let Some(start) = scan::footer(bytes)? else { return Ok(None) };
        // the record that ends the data lies before it
        let Some(data_end) = start.checked_sub((RECORD_HEAD + 4) as u64) else { return Ok(None) };
        let crc_at = bytes.length().saturating_sub((4 + mcap::MAGIC.len()) as u64);
        let footer = crc_at.saturating_sub(FOOTER as u64);
        if start > footer {
            return Ok(None);
        }
        if !is_crc(bytes, start, crc_at, crc_at)? {
            return Ok(None);
        }
        let is_data_whole = is_crc(bytes, 0, data_end, data_end + RECORD_HEAD as u64)?;
        let mut at = start;
        while at < footer {
            let head = bytes.read(at, RECORD_HEAD)?;
            let mut fields = Fields(head.get(1..).unwrap_or_default());
            let length = fields.long().unwrap_or(u64::MAX);
            let next = at.saturating_add(length).saturating_add(RECORD_HEAD as u64);
            if next > footer {
                return Ok(None);
            }
            if head.first() == Some(&op::STATISTICS) {
                let body =
                    bytes.read(at + RECORD_HEAD as u64, usize::try_from(length.min(64)).unwrap_or(0))?;
                return Ok(Some(Self { chunks: chunk_count(&body), is_data_whole }));
            }
            at = next;
        }
        Ok(Some(Self { chunks: None, is_data_whole }))
    }
}

fn chunk_count(statistics: &[u8]) -> Option<u64> {
    let mut fields = Fields(statistics);
    let (_messages, _schemas) = (fields.long()?, fields.short()?);
    let (_channels, _attachments, _metadata) = (fields.word()?, fields.word()?, fields.word()?);
    fields.word().map(u64::from)
}

/// Whether the bytes from `from` to `to` have the CRC that stands at `crc_at`; 0 there says that there is none.
fn is_crc(bytes: &Bytes, from: u64, to: u64, crc_at: u64) -> io::Result<bool> {
    let told = bytes.read(crc_at, 4)?;
    let told = Fields(&told).word().unwrap_or(0);
    if told == 0 {
        return Ok(true);
    }
    let mut crc = Crc::new();
    let mut at = from;
    while at < to {
        let count = usize::try_from(to - at).unwrap_or(PIECE).min(PIECE);
        crc.update(&bytes.read(at, count)?);
        at += count as u64;
    }
    Ok(crc.sum() == told)
}
