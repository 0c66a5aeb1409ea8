//! Samples of a host that were taken while no client looked: as they lie in a run's directory and as they travel. Pure.
//!
//! A record is its length behind these four bytes (`u32`), when the sample was taken (`u64`, microseconds of the host's
//! `CLOCK_MONOTONIC`), little-endian, and the sample as JSON in a zstd frame with a checksum.

use std::io::{self, Read, Write};

use bytes::{BufMut, Bytes};

use super::chunk::CHUNK_BYTES;
use super::limits;
use crate::domain::host::HostSample;
use crate::domain::ids::RunId;
use crate::domain::time::HostTime;

/// Length and time.
const HEAD: usize = 4 + 8;
/// Of zstd.
const LEVEL: i32 = 1;
/// Bytes of JSON that the records of one piece may hold together; and the window of a frame, as a power of two.
const MOST_JSON: usize = 2 << 20;
const WINDOW: u32 = 21;
/// Bytes of a run's id.
const RUN: usize = 26;

/// Samples of one host's share of a run: whole records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastSamples {
    /// The run.
    pub run: RunId,
    /// Records, at most [`CHUNK_BYTES`].
    pub data: Bytes,
}

impl PastSamples {
    /// Run id (26 bytes), records.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        [self.run.as_str().as_bytes(), &self.data[..]].concat()
    }

    /// `None` for what is no such message.
    pub(super) fn from_bytes(payload: &Bytes) -> Option<Self> {
        let mut payload = payload.clone();
        if !(RUN..=RUN + CHUNK_BYTES).contains(&payload.len()) {
            return None;
        }
        let run = std::str::from_utf8(&payload.split_to(RUN)).ok()?.parse().ok()?;
        Some(Self { run, data: payload })
    }

    /// The samples, each with when it was taken. What can't be read, and what is more than any host has to tell, is left out.
    pub fn samples(&self) -> Vec<(HostTime, HostSample)> {
        let mut room = MOST_JSON;
        records(&self.data).filter_map(|record| Some((record.t, record.sample(&mut room)?))).collect()
    }
}

/// One sample as it lies in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// When it was taken.
    pub t: HostTime,
    /// All of it.
    pub bytes: &'a [u8],
}

impl Record<'_> {
    /// What it holds, in no more bytes of JSON than there is room for; `None` where it can't be read. What was unpacked takes room, whatever
    /// came of it.
    fn sample(self, room: &mut usize) -> Option<HostSample> {
        let packed = self.bytes.get(HEAD..).filter(|_| *room > 0)?;
        let json = unpacked(packed, room).ok()?;
        limits::check(&json).ok()?;
        serde_json::from_slice(&json).ok()
    }
}

/// A record of a sample; `None` where that is larger than a message may be.
pub fn record(t: HostTime, sample: &HostSample) -> Option<Vec<u8>> {
    let packed = packed(&serde_json::to_vec(sample).ok()?).ok()?;
    let length = u32::try_from(packed.len() + HEAD - 4).ok()?;
    let mut record = Vec::with_capacity(HEAD + packed.len());
    record.put_u32_le(length);
    record.put_u64_le(t.0);
    record.put_slice(&packed);
    (record.len() <= CHUNK_BYTES).then_some(record)
}

/// The records of a piece of a file, up to where it is torn or holds something else.
pub fn records(data: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let mut rest = data;
    std::iter::from_fn(move || {
        let length = usize::try_from(u32::from_le_bytes(*rest.first_chunk()?)).ok()?;
        let whole = length.checked_add(4).filter(|whole| (HEAD..=CHUNK_BYTES).contains(whole))?;
        let (bytes, behind) = rest.split_at_checked(whole)?;
        let t = u64::from_le_bytes(*bytes.get(4..)?.first_chunk()?);
        rest = behind;
        Some(Record { t: HostTime(t), bytes })
    })
}

fn packed(json: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = zstd::Encoder::new(Vec::new(), LEVEL)?;
    packed.include_checksum(true)?;
    packed.write_all(json)?;
    packed.finish()
}

fn unpacked(frame: &[u8], room: &mut usize) -> io::Result<Vec<u8>> {
    let mut json = Vec::new();
    let mut decoder = zstd::Decoder::new(frame)?;
    decoder.window_log_max(WINDOW)?;
    // one byte more shows that there is too much
    let read = decoder.take(*room as u64 + 1).read_to_end(&mut json);
    let left = room.checked_sub(json.len());
    *room = left.unwrap_or(0);
    read?;
    left.map(|_| json).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::gpu::{GpuSample, Reading};

    fn sample(gpus: u32) -> HostSample {
        let gpu = |index| GpuSample { util: Reading::Value(90 + index % 9), ..GpuSample::unknown(index) };
        HostSample {
            cpu_percent: Reading::Value(12.5),
            memory_used: Reading::Value(1 << 30),
            load: Reading::failed("/proc/loadavg: denied"),
            net_rx: Reading::Value(7),
            net_tx: Reading::Unsupported,
            gpus: (0..gpus).map(gpu).collect(),
        }
    }

    fn told(data: Vec<u8>) -> Vec<(HostTime, HostSample)> {
        PastSamples { run: RunId::new(1, 2), data: data.into() }.samples()
    }

    #[test]
    fn samples_come_back_as_they_were() {
        let data =
            [record(HostTime(5), &sample(2)).unwrap(), record(HostTime(9), &sample(0)).unwrap()].concat();
        assert_eq!(told(data.clone()), [(HostTime(5), sample(2)), (HostTime(9), sample(0))]);
        let message = PastSamples { run: RunId::new(1, 2), data: data.into() };
        assert_eq!(PastSamples::from_bytes(&message.to_bytes().into()), Some(message));
        assert_eq!(PastSamples::from_bytes(&Bytes::from(vec![b'0'; RUN - 1])), None);
        assert_eq!(PastSamples::from_bytes(&Bytes::from(vec![b'0'; RUN + CHUNK_BYTES + 1])), None);
    }

    #[test]
    fn eight_gpus_take_little_room() {
        let length = record(HostTime(5), &sample(8)).unwrap().len();
        assert!(length < 1024, "{length} bytes");
    }

    #[test]
    fn what_is_torn_or_no_record_ends_the_list_and_a_damaged_one_is_left_out() {
        let (one, two) = (record(HostTime(5), &sample(1)).unwrap(), record(HostTime(9), &sample(2)).unwrap());
        let whole = [one.clone(), two.clone()].concat();
        for length in 0..whole.len() {
            let expected = usize::from(length >= one.len());
            assert_eq!(records(&whole[..length]).count(), expected, "{length}");
        }
        let mut damaged = whole.clone();
        damaged[one.len() / 2] ^= 0xff;
        assert_eq!(told(damaged), [(HostTime(9), sample(2))]);
        for length in [0, 7, CHUNK_BYTES as u32 - 3, u32::MAX] {
            let garbage = [&one[..], &length.to_le_bytes()[..], &two[4..]].concat();
            assert_eq!(records(&garbage).count(), 1, "{length}");
        }
    }

    #[test]
    fn a_piece_that_unpacks_to_too_much_is_not_read() {
        let json = vec![b' '; MOST_JSON + 1];
        let frame = packed(&json).unwrap();
        let length = u32::try_from(frame.len() + 8).unwrap();
        let bomb = [&length.to_le_bytes()[..], &5_u64.to_le_bytes()[..], &frame[..]].concat();
        assert_eq!(records(&bomb).count(), 1);
        assert!(told(bomb.clone()).is_empty());
        // nor is what stands behind it: there may be hundreds of them
        assert!(told([bomb, record(HostTime(9), &sample(1)).unwrap()].concat()).is_empty());
    }

    #[test]
    fn a_sample_that_holds_more_than_a_message_may_is_left_out() {
        let with = |values: usize| {
            let mut json = serde_json::to_value(sample(1)).unwrap();
            json["later"] = vec![0; values].into();
            let frame = packed(&serde_json::to_vec(&json).unwrap()).unwrap();
            let length = u32::try_from(frame.len() + 8).unwrap();
            [&length.to_le_bytes()[..], &5_u64.to_le_bytes()[..], &frame[..]].concat()
        };
        assert_eq!(told(with(3)), [(HostTime(5), sample(1))]);
        assert!(told(with(150_000)).is_empty());
    }
}
