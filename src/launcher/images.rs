//! Copies an image of this machine to hosts: asks each what it has, sends what it lacks while the image is still being
//! read here, and lets its engine load it. All hosts at once, each for itself: one that fails holds up no other, and a link
//! that is lost begins again with what the host has by then. Does no I/O but for the threads of its uploads.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::upload::{Content, Source, Upload, cost};
use crate::cluster::pool::HostSender;
use crate::domain::container::ImageId;
use crate::domain::host::RefusalKind;
use crate::domain::ids::HostId;
use crate::domain::run::RefusalClass;
use crate::domain::sync::Digest;
use crate::domain::time::Stamp;
use crate::domain::units::duration_us;
use crate::domain::waiting::{NAMED, Waiting};
use crate::image::saved::{Blob, Saved};
use crate::wire::image::{ImageAsk, ImageLoad, ImageOpen, ImageState, ImageTold};
use crate::wire::message::ToAgent;
use crate::wire::upload::{BlobsTaken, UploadRef};

/// A host that says nothing for so long while its link is up has failed: it may have to read, or to unpack, gigabytes.
const SILENT_US: i64 = 900_000_000;
/// How long one whose link is lost is waited for.
const LOST_US: i64 = 300_000_000;

/// An image and what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The name that it gets on the hosts; none where it was called by its id.
    pub name: Option<String>,
    /// What it is.
    pub id: ImageId,
    /// Its layers from the bottom up, each the hash of its uncompressed content.
    pub layers: Vec<Digest>,
    /// For which machines it is.
    pub platform: String,
    /// Write nothing.
    pub dry: bool,
    /// Where its contents lie once they were read, each in a file of its hash's name.
    pub dir: PathBuf,
}

/// An image on its way to hosts.
#[derive(Debug)]
pub struct Pushing {
    asked: Asked,
    hosts: BTreeMap<HostId, HostPush>,
    /// Of the last upload.
    number: u32,
    /// Contents that were read.
    read: Vec<Blob>,
    saved: Option<Saved>,
    /// Whether the image could not be read.
    is_unreadable: bool,
}

#[derive(Debug)]
struct HostPush {
    to: HostSender,
    engine: Option<String>,
    phase: Phase,
    /// Whether it has said that it lacks the image.
    wants: bool,
    upload: Upload,
    /// Layers that need not be sent, from the bottom up.
    there: usize,
    held: BTreeMap<Digest, u64>,
    /// What was sent in this upload, or is there whole.
    sent: BTreeSet<Digest>,
    /// Its cost, and how much of that was taken.
    cost: u64,
    taken: u64,
    /// What earlier uploads brought, which ended with their links.
    before: u64,
    /// When it said something last.
    heard: Stamp,
    begun: Stamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Connecting,
    Opening,
    /// Another copy of the image is under way there.
    Waiting,
    Copying,
    Loading,
    Down(String),
    Ended,
}

/// What became of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It has the image.
    Has {
        /// What its engine calls it.
        id: ImageId,
        /// Since when.
        how: How,
    },
    /// It lacks it; nothing was asked for but that.
    Lacks {
        /// Its engine.
        engine: String,
        /// How many layers would be sent.
        layers: usize,
        /// How many it has.
        there: usize,
    },
    /// It has not got it.
    Failed(Why, String),
}

/// How a host has come by an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// It had it.
    Before,
    /// It had it under another name.
    Named,
    /// It was copied.
    Copied {
        /// Bytes that were sent.
        bytes: u64,
        /// Microseconds from its answer to the end.
        took_us: u64,
    },
}

/// Of what kind a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The host said so.
    Refused(RefusalClass),
    /// Its link was refused.
    Link(RefusalKind),
    /// It can't be reached, or does not answer.
    Unreachable,
    /// This machine could not read the image.
    NotRead,
}

/// How far all hosts are together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// Hosts that have not answered yet.
    pub asked: Waiting,
    /// Hosts that wait for another copy of the image.
    pub waiting: Waiting,
    /// Hosts to which it is being copied.
    pub copying: Waiting,
    /// Hosts whose engine loads it.
    pub loading: Waiting,
    /// Hosts whose link is lost.
    pub lost: Waiting,
    /// Bytes that were taken.
    pub taken: u64,
    /// Of so many; not known before the image was read.
    pub whole: Option<u64>,
}

/// A host and what became of it.
pub type News = (HostId, Ended);

impl Pushing {
    /// To these hosts, each with the program of its engine where one is named. Nothing is sent before
    /// [`is_up`](Self::is_up).
    pub fn new(
        asked: Asked,
        hosts: impl IntoIterator<Item = (HostId, HostSender, Option<String>)>,
        at: Stamp,
    ) -> Self {
        let host = |(host, to, engine)| {
            let push = HostPush {
                to,
                engine,
                phase: Phase::Connecting,
                wants: false,
                upload: Upload::new(0, at),
                there: 0,
                held: BTreeMap::new(),
                sent: BTreeSet::new(),
                cost: 0,
                taken: 0,
                before: 0,
                heard: at,
                begun: at,
            };
            (host, push)
        };
        let hosts = hosts.into_iter().map(host).collect();
        Self { asked, hosts, number: 0, read: Vec::new(), saved: None, is_unreadable: false }
    }

    /// A host's link is up.
    pub fn is_up(&mut self, host: &HostId, at: Stamp) {
        let Some(push) = self.hosts.get_mut(host) else { return };
        if !matches!(push.phase, Phase::Connecting | Phase::Down(_)) {
            return;
        }
        if push.phase == Phase::Connecting {
            push.begun = at;
        }
        self.number += 1;
        push.upload = Upload::new(self.number, at);
        push.before += push.taken;
        (push.phase, push.cost, push.taken, push.heard) = (Phase::Opening, 0, 0, at);
        push.sent.clear();
        push.to.send(ToAgent::Image(ImageAsk::Open(Box::new(ImageOpen {
            upload: self.number,
            name: self.asked.name.clone(),
            id: self.asked.id.clone(),
            layers: self.asked.layers.clone(),
            platform: self.asked.platform.clone(),
            engine: push.engine.clone(),
            dry: self.asked.dry,
        }))));
    }

    /// A host's link is lost, or never came.
    pub fn is_down(&mut self, host: &HostId, reason: &str, at: Stamp) -> Option<News> {
        let push = self.hosts.get_mut(host)?;
        match push.phase {
            Phase::Connecting => push.end(host, Ended::Failed(Why::Unreachable, reason.to_owned())),
            Phase::Ended | Phase::Down(_) => None,
            _ => {
                (push.phase, push.heard) = (Phase::Down(reason.to_owned()), at);
                // what was not sent must not be sent into the next link
                push.upload = Upload::new(0, at);
                None
            }
        }
    }

    /// A host's link can't come up before a person acts.
    pub fn is_refused(&mut self, host: &HostId, kind: RefusalKind, reason: &str) -> Option<News> {
        self.hosts.get_mut(host)?.end(host, Ended::Failed(Why::Link(kind), reason.to_owned()))
    }

    /// A host says how far it is.
    pub fn told(&mut self, host: &HostId, told: ImageTold, at: Stamp) -> Option<News> {
        let push = self.hosts.get_mut(host).filter(|push| push.upload.number() == told.upload)?;
        push.heard = at;
        match told.state {
            ImageState::Waiting => push.phase = Phase::Waiting,
            ImageState::Wanted { engine, there, .. } if self.asked.dry => {
                let there = there.min(self.asked.layers.len());
                let layers = self.asked.layers.len() - there;
                return push.end(host, Ended::Lacks { engine, layers, there });
            }
            ImageState::Wanted { .. } if self.is_unreadable => {
                push.to.send(close(push));
                return push.not_read(host);
            }
            ImageState::Wanted { there, held, .. } => {
                push.wants = true;
                push.phase = Phase::Copying;
                push.there = there.min(self.asked.layers.len());
                push.held = held.into_iter().collect();
                return self.feed(host);
            }
            ImageState::Present { id, changed } => {
                let took_us = at.micros_since(push.begun).unsigned_abs();
                let bytes = push.before + push.taken;
                // after a lost link a host may say that it has what it has just loaded
                let how = match (push.wants, changed) {
                    (true, _) => How::Copied { bytes, took_us },
                    (false, true) => How::Named,
                    (false, false) => How::Before,
                };
                if !id.is(&self.asked.id) {
                    let text = format!(
                        "its engine has {} behind the copy, this machine has {}: somebody gave the name to another \
                         image, or the engine has changed it",
                        id.short(),
                        self.asked.id.short()
                    );
                    return push.end(host, Ended::Failed(Why::Refused(RefusalClass::Fault), text));
                }
                return push.end(host, Ended::Has { id, how });
            }
            ImageState::Refused { reason, class } => {
                return push.end(host, Ended::Failed(Why::Refused(class), reason));
            }
        }
        None
    }

    /// A host has taken more.
    pub fn taken(&mut self, host: &HostId, taken: &BlobsTaken, at: Stamp) -> Option<News> {
        let push = self.hosts.get_mut(host).filter(|push| push.upload.number() == taken.upload)?;
        push.heard = at;
        push.taken = taken.taken.min(push.cost);
        push.upload.taken(push.taken, at);
        self.feed(host)
    }

    /// Whether a host waits for contents of the image.
    pub fn wants_contents(&self) -> bool {
        self.hosts.values().any(|push| push.phase == Phase::Copying)
    }

    /// A content of the image was read.
    pub fn content(&mut self, blob: Blob) -> Vec<News> {
        self.read.push(blob);
        self.feed_all()
    }

    /// The whole image was read.
    pub fn saved(&mut self, saved: Saved) -> Vec<News> {
        if saved.layers.len() != self.asked.layers.len() {
            return self.not_saved();
        }
        self.saved = Some(saved);
        self.feed_all()
    }

    /// The image can't be read: no host that lacks it gets it.
    pub fn not_saved(&mut self) -> Vec<News> {
        self.is_unreadable = true;
        let wanting = self.hosts.iter_mut().filter(|(_, push)| push.wants && push.phase != Phase::Ended);
        wanting
            .filter_map(|(host, push)| {
                push.to.send(close(push));
                push.not_read(host)
            })
            .collect()
    }

    fn feed_all(&mut self) -> Vec<News> {
        let hosts: Vec<HostId> = self.hosts.keys().cloned().collect();
        hosts.iter().filter_map(|host| self.feed(host)).collect()
    }

    /// Sends a host what was read by now and it lacks; when that is all, lets it load the image.
    fn feed(&mut self, host: &HostId) -> Option<News> {
        let push = self.hosts.get_mut(host)?;
        if push.phase != Phase::Copying || push.taken < push.cost {
            return None;
        }
        let wanted = wanted(&self.asked, self.saved.as_ref(), push.there);
        let mut contents = Vec::new();
        for blob in self.read.iter().filter(|blob| wanted.contains(&blob.name)) {
            let from = push.from(*blob);
            // the last byte of an empty one is none
            if push.sent.insert(blob.name) && (from < blob.size || !push.held.contains_key(&blob.name)) {
                let source = Source::File(self.asked.dir.join(blob.name.to_string()));
                contents.push(Content { name: blob.name, size: blob.size, from, source });
            }
        }
        if !contents.is_empty() {
            match push.upload.send(push.to.clone(), contents, push.cost, None) {
                Ok(cost) => push.cost = cost,
                Err(error) => {
                    let text = format!("no thread for an upload: {error}");
                    return push.end(host, Ended::Failed(Why::Unreachable, text));
                }
            }
            return None;
        }
        let saved = self.saved.as_ref()?;
        push.phase = Phase::Loading;
        let there = push.there;
        let layer = |(at, blob): (usize, &Blob)| (at >= there).then_some(blob.name);
        push.to.send(ToAgent::Image(ImageAsk::Load(ImageLoad {
            upload: push.upload.number(),
            config: saved.config.name,
            layers: saved.layers.iter().enumerate().map(layer).collect(),
        })));
        None
    }

    /// Who has been silent for too long, or can't be sent to.
    pub fn look(&mut self, now: Stamp) -> Vec<News> {
        let all = self.hosts.iter_mut();
        all.filter_map(|(host, push)| {
            // what it lacks was not read yet: it has nothing to say
            if push.phase == Phase::Copying && push.taken >= push.cost {
                push.heard = now;
            }
            let silent = now.micros_since(push.heard);
            let lasts = duration_us(silent.unsigned_abs());
            let text = match &push.phase {
                Phase::Down(reason) if silent > LOST_US => format!(
                    "{reason}; it was lost during the copy and did not come back for {lasts}: what was copied stays there, and \
                     the next push goes on with it"
                ),
                Phase::Connecting | Phase::Waiting | Phase::Down(_) | Phase::Ended => return None,
                _ if silent > SILENT_US => format!("did not answer for {lasts} during the copy"),
                _ => format!("this machine: {}", push.upload.fault()?),
            };
            push.end(host, Ended::Failed(Why::Unreachable, text))
        })
        .collect()
    }

    /// Whether nothing more comes.
    pub fn is_over(&self) -> bool {
        self.hosts.values().all(|push| push.phase == Phase::Ended)
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let mut progress = Progress { whole: Some(0), ..Progress::default() };
        for (host, push) in &self.hosts {
            progress.taken += push.before + push.taken;
            let rest = self.rest(push);
            progress.whole =
                progress.whole.zip(rest).map(|(whole, rest)| whole + push.before + push.cost + rest);
            let of = match push.phase {
                Phase::Connecting | Phase::Opening => &mut progress.asked,
                Phase::Waiting => &mut progress.waiting,
                Phase::Copying => &mut progress.copying,
                Phase::Loading => &mut progress.loading,
                Phase::Down(_) => &mut progress.lost,
                Phase::Ended => continue,
            };
            of.count += 1;
            if of.names.len() < NAMED {
                of.names.push(host.to_string());
            }
        }
        progress
    }

    /// The cost of what a host lacks and was not sent yet, once that is known.
    fn rest(&self, push: &HostPush) -> Option<u64> {
        if push.phase != Phase::Copying {
            return Some(0);
        }
        let saved = self.saved.as_ref()?;
        let wanted = wanted(&self.asked, Some(saved), push.there);
        let all: BTreeSet<&Blob> = saved.layers.iter().chain([&saved.config]).collect();
        let left =
            all.into_iter().filter(|blob| wanted.contains(&blob.name) && !push.sent.contains(&blob.name));
        Some(left.map(|blob| cost(blob.size, push.from(*blob))).sum())
    }

    /// Calls it off; what hosts have got by now stays for the next time.
    pub fn close(&self) {
        for push in self.hosts.values().filter(|push| push.phase != Phase::Ended) {
            push.to.send(close(push));
        }
    }
}

fn close(push: &HostPush) -> ToAgent {
    ToAgent::Image(ImageAsk::Close(UploadRef { upload: push.upload.number() }))
}

/// The contents that a host gets which has so many layers. Before the image was read whole only those layers are known that the
/// engine keeps uncompressed.
fn wanted(asked: &Asked, saved: Option<&Saved>, there: usize) -> BTreeSet<Digest> {
    match saved {
        Some(saved) => saved.layers.iter().skip(there).chain([&saved.config]).map(|blob| blob.name).collect(),
        None => asked.layers.iter().skip(there).copied().collect(),
    }
}

impl HostPush {
    /// The first byte of a content that is not there.
    fn from(&self, blob: Blob) -> u64 {
        self.held.get(&blob.name).map_or(0, |held| blob.size.min(*held))
    }

    fn not_read(&mut self, host: &HostId) -> Option<News> {
        self.end(
            host,
            Ended::Failed(Why::NotRead, "not copied: this machine could not read the image".to_owned()),
        )
    }

    fn end(&mut self, host: &HostId, ended: Ended) -> Option<News> {
        if self.phase == Phase::Ended {
            return None;
        }
        self.phase = Phase::Ended;
        Some((host.clone(), ended))
    }
}

#[cfg(test)]
#[path = "images_tests.rs"]
mod tests;
