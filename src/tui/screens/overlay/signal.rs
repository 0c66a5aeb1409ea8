//! The dialog that sends a signal to a process: which signal, to it alone or with its tree, what exactly will be sent, and
//! a confirmation. The host is asked first which processes that would be, and then to signal those and no others.

use std::collections::BTreeMap;

use crate::domain::gpu::Reading;
use crate::domain::ids::HostId;
use crate::domain::signal::{
    FoundProcess, ProcessKey, SignalAnswer, SignalName, SignalRequest, intent, outcome,
};
use crate::domain::text::about;
use crate::tui::core::{Effect, Key, KeyCode, Level};
use crate::tui::screens::Model;
use crate::tui::screens::model::Overlay;
use crate::tui::screens::processes::{ProcessId, find};

/// Lines of a page of the list of processes.
const PAGE: usize = 5;

/// Requests of this client about signals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignalsUi {
    /// The number of the last one.
    asked: u32,
    /// Signals that were sent and have no answer yet.
    sent: BTreeMap<u32, (HostId, SignalName)>,
}

impl SignalsUi {
    fn next(&mut self) -> u32 {
        self.asked = self.asked.wrapping_add(1);
        self.asked
    }
}

/// The dialog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignalUi {
    /// On which host.
    pub host: HostId,
    /// The process that was chosen.
    pub process: ProcessKey,
    /// The GPU on which it was chosen, by its index.
    pub gpu: u32,
    /// Its owner's login name, where that is known.
    pub user: Option<String>,
    /// For how long it had been running, seconds, where that is known.
    pub age_s: Option<u64>,
    /// Its command.
    pub command: String,
    /// With all that descends from it.
    pub tree: bool,
    /// The signal that is chosen.
    pub signal: SignalName,
    /// How far it has come.
    pub step: Step,
    /// The first process of the list that is shown.
    pub first: usize,
    /// The host's boot id, under which the process was seen.
    boot: String,
    /// The request that is waited for.
    number: u32,
}

/// How far the dialog has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The host is asked which processes it would be.
    Looking,
    /// These are they.
    Found {
        /// Each process.
        processes: Vec<FoundProcess>,
        /// What to consider.
        note: Option<String>,
        /// Whether the confirmation is asked for.
        confirm: bool,
    },
    /// Nothing can be sent, and why.
    Refused(String),
}

impl SignalUi {
    /// The processes that the signal would go to.
    pub fn targets(&self) -> Vec<&FoundProcess> {
        match &self.step {
            Step::Found { processes, .. } => {
                processes.iter().filter(|process| process.refusal.is_none()).collect()
            }
            Step::Looking | Step::Refused(_) => Vec::new(),
        }
    }

    /// What will be sent, in one sentence.
    pub fn intent(&self) -> String {
        intent(self.signal, &self.host, &self.targets())
    }

    /// Whether what is sent is shown, and one key away.
    pub fn is_confirmed(&self) -> bool {
        matches!(self.step, Step::Found { confirm: true, .. })
    }

    fn look(&self) -> Effect {
        let (boot, process, tree) = (self.boot.clone(), self.process, self.tree);
        let request = SignalRequest::Look { boot, process, tree };
        Effect::Signal { host: self.host.clone(), number: self.number, request }
    }
}

/// Opens the dialog on a process, or says why there is none.
pub fn open(model: &mut Model, id: &ProcessId) -> Vec<Effect> {
    match opened(model, id) {
        Ok(mut shown) => {
            shown.number = model.ui.signals.next();
            let effect = shown.look();
            model.ui.overlay = Overlay::Signal(Box::new(shown));
            vec![effect]
        }
        Err(why) => {
            model.notice(Level::Warning, why);
            Vec::new()
        }
    }
}

fn opened(model: &Model, id: &ProcessId) -> Result<SignalUi, String> {
    if model.is_replay() {
        return Err("this is a recording: its processes can't be signalled".to_owned());
    }
    let (host, _, pid) = id;
    let row = find(model, id).ok_or_else(|| format!("process {pid} on {host} has ended"))?;
    let state = &model.world.hosts[host];
    if state.is_limited() {
        return Err(format!("no agent of hvtui runs on {host}: its processes can't be signalled from here"));
    }
    if !state.is_up() {
        return Err(format!("{host} is not connected: its processes can't be signalled"));
    }
    let info = state.info.as_ref().ok_or_else(|| format!("{host} has not told its facts yet"))?;
    let key = row.process.key().ok_or_else(|| match &row.process.start_ticks {
        Reading::Failed { error } => about(host, &format!("process {pid} can't be signalled: {error}")),
        _ => format!(
            "{host} does not tell when process {pid} started, which a signal needs: use the same hvtui there"
        ),
    })?;
    let command = row.process.command.value().cloned().unwrap_or_default();
    Ok(SignalUi {
        host: host.clone(),
        process: key,
        gpu: row.gpu,
        user: row.process.user.value().cloned(),
        age_s: row.process.age_s.value().copied(),
        command,
        tree: false,
        signal: SignalName::Term,
        step: Step::Looking,
        first: 0,
        boot: info.boot_id.clone(),
        number: 0,
    })
}

/// An answer of a host.
pub fn told(model: &mut Model, number: u32, answer: SignalAnswer) {
    if let Some((host, signal)) = model.ui.signals.sent.remove(&number) {
        let (text, all) = match &answer {
            SignalAnswer::Sent { processes } => outcome(signal, &host, processes),
            SignalAnswer::Refused { reason } => (format!("{signal} on {host}: {reason}"), false),
            SignalAnswer::Found { .. } => return,
        };
        model.notice(if all { Level::Info } else { Level::Error }, text);
        return;
    }
    let Overlay::Signal(shown) = &mut model.ui.overlay else { return };
    if shown.number == number && shown.step == Step::Looking {
        shown.step = match answer {
            SignalAnswer::Found { processes, note } => Step::Found { processes, note, confirm: false },
            SignalAnswer::Refused { reason } => Step::Refused(reason),
            SignalAnswer::Sent { .. } => return,
        };
    }
}

/// A key while the dialog is open.
pub fn handle_key(model: &mut Model, key: Key) -> Vec<Effect> {
    let Overlay::Signal(shown) = &mut model.ui.overlay else { return Vec::new() };
    let has_targets = !shown.targets().is_empty();
    if let Step::Found { confirm, .. } = &mut shown.step
        && *confirm
    {
        match key.code {
            KeyCode::Char('y') => return send(model),
            _ if key.is_no() => *confirm = false,
            _ => scroll(shown, key),
        }
        return Vec::new();
    }
    match key.code {
        KeyCode::Esc | KeyCode::Char('q') => model.ui.overlay = Overlay::None,
        KeyCode::Up | KeyCode::Char('k') => choose(shown, -1),
        KeyCode::Down | KeyCode::Char('j') => choose(shown, 1),
        KeyCode::Char('t') => {
            shown.tree = !shown.tree;
            shown.step = Step::Looking;
            shown.first = 0;
            shown.number = model.ui.signals.next();
            return vec![shown.look()];
        }
        KeyCode::Enter => {
            if let Step::Found { confirm, .. } = &mut shown.step {
                *confirm = has_targets;
            }
        }
        _ => scroll(shown, key),
    }
    Vec::new()
}

fn choose(shown: &mut SignalUi, delta: isize) {
    let all = SignalName::ALL;
    let at = all.iter().position(|signal| *signal == shown.signal).unwrap_or(0);
    shown.signal = all[at.saturating_add_signed(delta).min(all.len() - 1)];
}

fn scroll(shown: &mut SignalUi, key: Key) {
    let Step::Found { processes, .. } = &shown.step else { return };
    let last = processes.len().saturating_sub(1);
    shown.first = match key.code {
        KeyCode::PageDown => shown.first + PAGE,
        KeyCode::PageUp => shown.first.saturating_sub(PAGE),
        _ => return,
    }
    .min(last);
}

fn send(model: &mut Model) -> Vec<Effect> {
    let Overlay::Signal(shown) = std::mem::take(&mut model.ui.overlay) else { return Vec::new() };
    let number = model.ui.signals.next();
    let (host, signal) = (shown.host.clone(), shown.signal);
    let processes = shown.targets().iter().map(|process| process.key).collect();
    model.ui.signals.sent.insert(number, (host.clone(), signal));
    let request = SignalRequest::Send { boot: shown.boot, signal, processes };
    vec![Effect::Signal { host, number, request }]
}
