//! The number of each kind of message, and how it is written and read.

use bytes::BytesMut;

use super::chunk::Chunk;
use super::frame::{self, Frame};
use super::image::ImageAsk;
use super::mesh::{MeshAsk, MeshTold};
use super::message::{FromAgent, MessageError, ToAgent};
use super::payload::{bounded, json, parse, whole};
use super::samples::PastSamples;
use super::sync::SyncAsk;
use super::trace::TracePiece;
use super::upload::BlobPiece;

impl ToAgent {
    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), MessageError> {
        match self {
            Self::Hello(m) => json(1, m, out),
            Self::Ping(m) => json(2, m, out),
            Self::Watch(m) => json(3, m, out),
            Self::Prepare(m) => json(4, m, out),
            Self::Commit(m) => json(5, m, out),
            Self::Abort(m) => json(6, m, out),
            Self::Follow(m) => json(7, m, out),
            Self::Stop(m) => json(8, m, out),
            Self::ListRuns(m) => json(10, m, out),
            Self::Credit(m) => json(9, m, out),
            Self::Mesh(MeshAsk::Look(m)) => json(12, m, out),
            Self::Mesh(MeshAsk::Apply(m)) => json(13, m, out),
            Self::Mesh(MeshAsk::Try(m)) => json(14, m, out),
            Self::Mesh(MeshAsk::Remove(m)) => json(15, m, out),
            Self::Queue(m) => json(11, m, out),
            Self::Trace(m) => json(17, m, out),
            Self::AskStacks(m) => json(16, m, out),
            Self::Forget(m) => json(40, m, out),
            Self::AskPreflight(m) => json(41, m, out),
            Self::AskChecks(m) => json(42, m, out),
            Self::Sync(SyncAsk::Open(m)) => json(18, m, out),
            Self::Sync(SyncAsk::Compare(m)) => json(19, m, out),
            Self::Sync(SyncAsk::Switch(m)) => json(20, m, out),
            Self::Sync(SyncAsk::Close(m)) => json(21, m, out),
            Self::BlobPiece(m) => Ok(frame::encode(22, &m.to_bytes(), out)?),
            Self::Image(ImageAsk::Open(m)) => json(23, m, out),
            Self::Image(ImageAsk::Load(m)) => json(24, m, out),
            Self::Image(ImageAsk::Close(m)) => json(25, m, out),
            Self::Signal(m) => json(26, m, out),
        }
    }

    /// Reads a frame; `None` for a kind of a newer client.
    pub fn decode(frame: &Frame) -> Result<Option<Self>, MessageError> {
        Ok(Some(match frame.kind {
            1 => Self::Hello(parse(frame)?),
            2 => Self::Ping(parse(frame)?),
            3 => Self::Watch(parse(frame)?),
            4 => Self::Prepare(parse(frame)?),
            5 => Self::Commit(parse(frame)?),
            6 => Self::Abort(parse(frame)?),
            7 => Self::Follow(parse(frame)?),
            8 => Self::Stop(parse(frame)?),
            10 => Self::ListRuns(parse(frame)?),
            9 => Self::Credit(parse(frame)?),
            12 => Self::Mesh(MeshAsk::Look(parse(frame)?)),
            13 => Self::Mesh(MeshAsk::Apply(parse(frame)?)),
            14 => Self::Mesh(MeshAsk::Try(parse(frame)?)),
            15 => Self::Mesh(MeshAsk::Remove(parse(frame)?)),
            11 => Self::Queue(parse(frame)?),
            17 => Self::Trace(parse(frame)?),
            16 => Self::AskStacks(parse(frame)?),
            40 => Self::Forget(parse(frame)?),
            41 => Self::AskPreflight(parse(frame)?),
            42 => Self::AskChecks(parse(frame)?),
            18 => Self::Sync(SyncAsk::Open(parse(frame)?)),
            19 => Self::Sync(SyncAsk::Compare(parse(frame)?)),
            20 => Self::Sync(SyncAsk::Switch(parse(frame)?)),
            21 => Self::Sync(SyncAsk::Close(parse(frame)?)),
            22 => {
                Self::BlobPiece(whole(BlobPiece::from_bytes(&frame.payload), frame, "no piece of a content")?)
            }
            23 => Self::Image(ImageAsk::Open(parse(frame)?)),
            24 => Self::Image(ImageAsk::Load(parse(frame)?)),
            25 => Self::Image(ImageAsk::Close(parse(frame)?)),
            26 => Self::Signal(parse(frame)?),
            _ => return Ok(None),
        }))
    }
}

impl FromAgent {
    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), MessageError> {
        match self {
            Self::Hello(m) => json(101, m, out),
            Self::Pong(m) => json(102, m, out),
            Self::Info(m) => json(103, m, out),
            Self::Sample(m) => json(104, m, out),
            Self::Prepared(m) => json(105, m, out),
            Self::Refused(m) => json(106, m, out),
            Self::Started(m) => json(107, m, out),
            Self::RankStarted(m) => json(108, m, out),
            Self::RankExited(m) => json(109, m, out),
            Self::Chunk(m) => Ok(frame::encode(110, &m.to_bytes(), out)?),
            Self::Written(m) => json(141, m, out),
            Self::Finished(m) => json(111, m, out),
            Self::Runs(m) => json(113, m, out),
            Self::Mesh(MeshTold::Seen(m)) => json(115, m, out),
            Self::Mesh(MeshTold::Done(m)) => json(116, m, out),
            Self::Mesh(MeshTold::Tried(m)) => json(117, m, out),
            Self::Noted(m) => json(114, m, out),
            Self::Gap(m) => json(112, m, out),
            Self::Leases(m) => json(119, m, out),
            Self::Stands(m) => json(120, m, out),
            Self::Traces(m) => json(122, m, out),
            Self::TracePiece(m) => Ok(frame::encode(123, &m.to_bytes(), out)?),
            Self::PastSamples(m) => Ok(frame::encode(145, &m.to_bytes(), out)?),
            Self::Stacks(m) => json(121, m, out),
            Self::Forgotten(m) => json(142, m, out),
            Self::Preflight(m) => json(143, m, out),
            Self::Checked(m) => json(144, m, out),
            Self::Collectives(m) => json(124, m, out),
            Self::Sync(m) => json(125, m, out),
            Self::BlobsTaken(m) => json(126, m, out),
            Self::Image(m) => json(127, m, out),
            Self::Signal(m) => json(128, m, out),
            Self::GpuEvents(m) => json(140, m, out),
        }
    }

    /// Reads a frame; `None` for a kind of a newer agent. What is in it is counted before any of it is read.
    pub fn decode(frame: &Frame) -> Result<Option<Self>, MessageError> {
        Ok(Some(match frame.kind {
            101 => Self::Hello(bounded(frame)?),
            102 => Self::Pong(bounded(frame)?),
            103 => Self::Info(bounded(frame)?),
            104 => Self::Sample(bounded(frame)?),
            105 => Self::Prepared(bounded(frame)?),
            106 => Self::Refused(bounded(frame)?),
            107 => Self::Started(bounded(frame)?),
            108 => Self::RankStarted(bounded(frame)?),
            109 => Self::RankExited(bounded(frame)?),
            110 => Self::Chunk(Chunk::from_bytes(frame)?),
            141 => Self::Written(bounded(frame)?),
            111 => Self::Finished(bounded(frame)?),
            113 => Self::Runs(bounded(frame)?),
            115 => Self::Mesh(MeshTold::Seen(bounded(frame)?)),
            116 => Self::Mesh(MeshTold::Done(bounded(frame)?)),
            117 => Self::Mesh(MeshTold::Tried(bounded(frame)?)),
            114 => Self::Noted(bounded(frame)?),
            112 => Self::Gap(bounded(frame)?),
            119 => Self::Leases(bounded(frame)?),
            120 => Self::Stands(bounded(frame)?),
            122 => Self::Traces(bounded(frame)?),
            123 => {
                Self::TracePiece(whole(TracePiece::from_bytes(&frame.payload), frame, "no piece of a trace")?)
            }
            145 => Self::PastSamples(whole(PastSamples::from_bytes(&frame.payload), frame, "no samples")?),
            121 => Self::Stacks(bounded(frame)?),
            142 => Self::Forgotten(bounded(frame)?),
            143 => Self::Preflight(bounded(frame)?),
            144 => Self::Checked(bounded(frame)?),
            124 => Self::Collectives(bounded(frame)?),
            125 => Self::Sync(bounded(frame)?),
            126 => Self::BlobsTaken(bounded(frame)?),
            127 => Self::Image(bounded(frame)?),
            128 => Self::Signal(bounded(frame)?),
            140 => Self::GpuEvents(bounded(frame)?),
            _ => return Ok(None),
        }))
    }
}

#[cfg(test)]
#[path = "kinds_tests.rs"]
mod tests;
