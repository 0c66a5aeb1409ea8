//! Takes an image from a client and gives it to this host's engine: one thread a copy, which owns the folder in which the
//! contents lie until they are whole.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use super::AgentConfig;
use super::upload::{Ask, Over, Upload};
use crate::domain::container::ImageId;
use crate::domain::run::RefusalClass;
use crate::domain::sync::Digest;
use crate::domain::text::sanitize;
use crate::image::archive::Parts;
use crate::image::client::{self, ClientError};
use crate::image::engine::{Engine, EngineError, Image};
use crate::image::reference::platform_of_this_machine;
use crate::image::staging::{self, Staging, StagingError};
use crate::sync::SyncError;
use crate::sync::blobs::Piece;
use crate::wire::image::{ImageLoad, ImageOpen, ImageState, ImageTold};
use crate::wire::message::FromAgent;
use crate::wire::upload::BlobPiece;

/// Between looks at a folder that another copy holds.
const LOOK: Duration = Duration::from_millis(50);
/// What a disk that is full needs.
const FULL: &str = "make room there; what was copied stays, and the next push goes on with it";

/// One copy.
struct Copy<'a> {
    upload: Upload,
    open: &'a ImageOpen,
}

/// Why it ends before its end.
enum End {
    Over,
    Refused(RefusalClass, String),
}

impl From<Over> for End {
    fn from(_: Over) -> Self {
        Self::Over
    }
}

impl From<EngineError> for End {
    fn from(error: EngineError) -> Self {
        let class = match error {
            EngineError::NotAllowed { .. } => RefusalClass::Permission,
            _ => RefusalClass::Unavailable,
        };
        Self::Refused(class, error.to_string())
    }
}

impl From<StagingError> for End {
    fn from(error: StagingError) -> Self {
        let class = match error.kind() {
            ErrorKind::PermissionDenied => RefusalClass::Permission,
            _ => RefusalClass::Unavailable,
        };
        Self::Refused(class, error.to_string())
    }
}

impl From<SyncError> for End {
    fn from(error: SyncError) -> Self {
        if let SyncError::Changed { name } = error {
            let text = format!(
                "what came, or lay here from an earlier push, was not the content of hash {name}: it was removed, push again"
            );
            return Self::Refused(RefusalClass::Unavailable, text);
        }
        let remedy = if error.is_full() { format!(": {FULL}") } else { String::new() };
        Self::Refused(RefusalClass::Unavailable, format!("{error}{remedy}"))
    }
}

/// Takes an image as it comes.
pub(super) fn serve(upload: Upload, config: &AgentConfig, open: &ImageOpen) {
    let mut copy = Copy { upload, open };
    match copy.carry_out(config) {
        Ok(Some((id, changed))) => copy.tell(ImageState::Present { id, changed }),
        Ok(None) | Err(End::Over) => {}
        Err(End::Refused(class, reason)) => copy.tell(ImageState::Refused { reason, class }),
    }
}

/// What is said where there is no thread for it.
pub(super) fn not_started(open: &ImageOpen) -> FromAgent {
    let reason = "this host lets the user start no more threads: see `ulimit -u` there".to_owned();
    let state = ImageState::Refused { reason, class: RefusalClass::Unavailable };
    FromAgent::Image(ImageTold { upload: open.upload, state })
}

impl Copy<'_> {
    fn carry_out(&mut self, config: &AgentConfig) -> Result<Option<(ImageId, bool)>, End> {
        let open = self.open;
        let engine = Engine::find(open.engine.as_deref(), std::env::var_os("PATH").as_deref())?;
        self.fits()?;
        let hex = open.id.id.strip_prefix("sha256:").unwrap_or(&open.id.id);
        let Ok(name) = hex.parse::<Digest>() else {
            let reason = format!("{} is no id of an image", sanitize(&open.id.id));
            return Err(End::Refused(RefusalClass::Fault, reason));
        };
        let (place, name) = (staging::place(&config.state_dir), name.to_string());
        if let Some(there) = self.there(&engine)? {
            // what is left of an earlier copy whose end was not received
            if let Some(left) = Staging::unused(&place, &name).filter(|_| !open.dry) {
                left.remove();
            }
            return Ok(Some(there));
        }
        let there = || if engine.skips_layers { engine.has_layers(&open.layers) } else { Ok(0) };
        if open.dry {
            let there = there()?;
            self.tell(ImageState::Wanted { engine: engine.name(), there, held: Vec::new() });
            return Ok(None);
        }
        let (staging, has_waited) = self.staging(&place, &name)?;
        if has_waited && let Some(there) = self.there(&engine)? {
            staging.remove();
            return Ok(Some(there));
        }
        let there = there()?;
        let held = staging.store().all_held();
        let whole = held.iter().map(|(name, _)| *name).filter(|name| staging.store().path_of(*name).exists());
        let mut whole: BTreeSet<Digest> = whole.collect();
        self.tell(ImageState::Wanted { engine: engine.name(), there, held });
        let load = self.contents(&staging, &mut whole)?;
        let parts = self.parts(&staging, &load, there, &whole)?;
        let loaded = client::load(&engine, &parts, || self.upload.is_over());
        let loaded = loaded.map_err(|error| of_client(&error))?;
        // without a name it is known by what this engine calls it, which may be another id than the client's
        let by_id = loaded.unwrap_or_else(|| format!("sha256:{}", load.config));
        let image = engine.image(open.name.as_deref().unwrap_or(&by_id))?;
        staging.remove();
        Ok(Some((image.id, true)))
    }

    /// Whether this machine can run it.
    fn fits(&self) -> Result<(), End> {
        let here = platform_of_this_machine();
        let asked = sanitize(&self.open.platform);
        if here == asked || asked.contains("unknown") {
            return Ok(());
        }
        let reason =
            format!("the image is for {asked}, and this host is {here}: build one with --platform {here}");
        Err(End::Refused(RefusalClass::Unavailable, reason))
    }

    /// The image, if the engine has it; it gets the name that it lacks.
    fn there(&self, engine: &Engine) -> Result<Option<(ImageId, bool)>, End> {
        let open = self.open;
        let find = |name: &str| match engine.image(name) {
            Ok(image) => Ok(Some(image).filter(|image: &Image| image.id.is(&open.id))),
            Err(EngineError::NoImage { .. }) => Ok(None),
            Err(error) => Err(error),
        };
        if let Some(image) = open.name.as_deref().map(find).transpose()?.flatten() {
            return Ok(Some((image.id, false)));
        }
        let Some(image) = find(&open.id.id)? else { return Ok(None) };
        let Some(name) = &open.name else { return Ok(Some((image.id, false))) };
        if !open.dry {
            engine.tag(&image.id.id, name)?;
        }
        Ok(Some((image.id, true)))
    }

    /// The folder of this image, once no other copy of it is under way; and whether there was one.
    fn staging(&mut self, place: &Path, name: &str) -> Result<(Staging, bool), End> {
        let mut is_told = false;
        loop {
            if let Some(staging) = Staging::open(place, name)? {
                return Ok((staging, is_told));
            }
            if !is_told {
                is_told = true;
                self.tell(ImageState::Waiting);
            }
            if self.upload.is_over() {
                return Err(End::Over);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Stages contents until the image is to be loaded.
    fn contents(&mut self, staging: &Staging, whole: &mut BTreeSet<Digest>) -> Result<ImageLoad, End> {
        let mut store = staging.store();
        loop {
            match self.upload.next()? {
                Ask::Piece(piece) => {
                    let BlobPiece { name, size, offset, ref data, .. } = piece;
                    if store.put(Piece { name, size, offset, data })? {
                        whole.insert(name);
                    }
                    self.upload.took(&piece);
                }
                Ask::Load(load) => return Ok(load),
                Ask::Compare | Ask::Switch => return Err(End::Over),
            }
        }
    }

    fn parts(
        &self,
        staging: &Staging,
        load: &ImageLoad,
        there: usize,
        whole: &BTreeSet<Digest>,
    ) -> Result<Parts, End> {
        let lacks = |what: String| End::Refused(RefusalClass::Fault, format!("{what} was not sent"));
        let path = |name: Digest| whole.contains(&name).then(|| staging.store().path_of(name));
        let config = path(load.config).ok_or_else(|| lacks("its configuration".to_owned()))?;
        if load.layers.len() != self.open.layers.len() {
            let (has, sent) = (self.open.layers.len(), load.layers.len());
            return Err(lacks(format!("the image has {has} layers, {sent} were named: one")));
        }
        let layers =
            load.layers.iter().zip(&self.open.layers).enumerate().map(|(at, (sent, layer))| match sent {
                Some(name) => {
                    path(*name).map(|path| (*name, Some(path))).ok_or_else(|| lacks(format!("layer {name}")))
                }
                None if at < there => Ok((*layer, None)),
                None => Err(lacks(format!("layer {layer}"))),
            });
        Ok(Parts {
            name: self.open.name.clone(),
            config: (load.config, config),
            layers: layers.collect::<Result<_, _>>()?,
        })
    }

    fn tell(&self, state: ImageState) {
        self.upload.tell(FromAgent::Image(ImageTold { upload: self.upload.number(), state }));
    }
}

fn of_client(error: &ClientError) -> End {
    if matches!(error, ClientError::Stopped) {
        return End::Over;
    }
    let text = error.to_string();
    let is_full = text.to_lowercase().contains("no space left on device");
    let remedy = if is_full {
        ": the engine's disk there is full: see `docker system df`; what was copied stays, and the next push goes on with it"
    } else {
        ""
    };
    End::Refused(RefusalClass::Unavailable, format!("{text}{remedy}"))
}
