//! Contents that a client sends over its link, for a folder or an image: each upload has a thread of its own.
//!
//! The link hands over what comes for an upload; a thread that is slow is felt by the client, which sends no more than
//! its window ahead. An upload ends with its link: what is staged stays for the next one.

use std::collections::HashMap;

use tokio::sync::mpsc::{self, error::TryRecvError};

use super::AgentConfig;
use super::outgoing::Outgoing;
use super::{image, sync};
use crate::wire::image::{ImageAsk, ImageLoad};
use crate::wire::message::FromAgent;
use crate::wire::sync::SyncAsk;
use crate::wire::upload::{BlobPiece, BlobsTaken, UploadRef};

/// Messages of an upload that may wait: more than a client's window holds.
const ROOM: usize = 64 << 10;
/// After so many bytes at the latest it is said that they were taken.
const TELL_EVERY: u64 = 128 << 10;

/// What comes for an upload.
#[derive(Debug)]
pub(super) enum Ask {
    Piece(BlobPiece),
    /// The manifest of a folder has come.
    Compare,
    /// All of a folder has come.
    Switch,
    /// All of an image has come.
    Load(ImageLoad),
}

/// The client wants nothing more of it.
pub(super) struct Over;

/// The uploads of one link.
#[derive(Debug)]
pub(super) struct Uploads {
    config: AgentConfig,
    out: Outgoing,
    open: HashMap<u32, mpsc::Sender<Ask>>,
}

impl Uploads {
    pub(super) fn new(config: AgentConfig, out: Outgoing) -> Self {
        Self { config, out, open: HashMap::new() }
    }

    /// Takes a message about a folder.
    pub(super) fn sync(&mut self, ask: SyncAsk) {
        match ask {
            SyncAsk::Open(open) => {
                let (upload, config) = (self.open(open.upload), self.config.clone());
                let refused = sync::not_started(&open);
                self.start("sync", move || sync::serve(upload, &config, &open), refused);
            }
            SyncAsk::Compare(UploadRef { upload }) => self.hand(upload, Ask::Compare),
            SyncAsk::Switch(UploadRef { upload }) => self.hand(upload, Ask::Switch),
            SyncAsk::Close(UploadRef { upload }) => drop(self.open.remove(&upload)),
        }
    }

    /// Takes a message about an image.
    pub(super) fn image(&mut self, ask: ImageAsk) {
        match ask {
            ImageAsk::Open(open) => {
                let (upload, config) = (self.open(open.upload), self.config.clone());
                let refused = image::not_started(&open);
                self.start("image", move || image::serve(upload, &config, &open), refused);
            }
            ImageAsk::Load(load) => self.hand(load.upload, Ask::Load(load)),
            ImageAsk::Close(UploadRef { upload }) => drop(self.open.remove(&upload)),
        }
    }

    /// Takes a piece of a content.
    pub(super) fn piece(&mut self, piece: BlobPiece) {
        self.hand(piece.upload, Ask::Piece(piece));
    }

    fn hand(&mut self, upload: u32, ask: Ask) {
        // one that is over, or a client that sends more than it may: its upload ends
        if self.open.get(&upload).is_some_and(|asks| asks.try_send(ask).is_err()) {
            self.open.remove(&upload);
        }
    }

    fn open(&mut self, number: u32) -> Upload {
        self.open.retain(|_, asks| !asks.is_closed());
        let (asks, asked) = mpsc::channel(ROOM);
        self.open.insert(number, asks);
        Upload { number, out: self.out.clone(), asked, taken: 0, told: 0 }
    }

    /// `refused` is said where there can be no thread.
    fn start(&self, name: &str, serve: impl FnOnce() + Send + 'static, refused: FromAgent) {
        if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(serve) {
            tracing::warn!(%error, name, "no thread for an upload");
            let out = self.out.clone();
            tokio::spawn(async move { out.control(refused).await });
        }
    }
}

/// One upload, for the thread that takes it.
pub(super) struct Upload {
    number: u32,
    out: Outgoing,
    asked: mpsc::Receiver<Ask>,
    taken: u64,
    told: u64,
}

impl Upload {
    /// Its number on the link.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// The next thing that comes.
    pub(super) fn next(&mut self) -> Result<Ask, Over> {
        match self.asked.try_recv() {
            Ok(ask) => Ok(ask),
            Err(TryRecvError::Disconnected) => Err(Over),
            Err(TryRecvError::Empty) => {
                self.tell_taken();
                self.asked.blocking_recv().ok_or(Over)
            }
        }
    }

    /// Whether the client wants nothing more of it; what has come until now is lost.
    pub(super) fn is_over(&mut self) -> bool {
        matches!(self.asked.try_recv(), Err(TryRecvError::Disconnected))
    }

    /// A piece was taken: the client may send more.
    pub(super) fn took(&mut self, piece: &BlobPiece) {
        self.taken += piece.cost();
        if self.taken - self.told >= TELL_EVERY {
            self.tell_taken();
        }
    }

    fn tell_taken(&mut self) {
        if self.taken > self.told {
            self.told = self.taken;
            self.tell(FromAgent::BlobsTaken(BlobsTaken { upload: self.number, taken: self.taken }));
        }
    }

    /// Tells the client. `false` when the link is gone.
    pub(super) fn tell(&self, told: FromAgent) -> bool {
        self.out.control_blocking(told)
    }
}
