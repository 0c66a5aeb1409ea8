//! Every key of every screen in one table: the update looks keys up here, the help and the footer are
//! made from it.

use super::key::{Key, KeyCode};
use super::model::Screen;

/// What a key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is described by its line in the table")]
pub enum Action {
    Help,
    Quit,
    Cluster,
    Runs,
    LatestRun,
    Up,
    Down,
    PageUp,
    PageDown,
    Top,
    Bottom,
    Back,
    // Cluster
    Pick,
    PickFree,
    Count,
    Unpick,
    FewerSlots,
    MoreSlots,
    Launch,
    Filter,
    Sort,
    Fold,
    FoldAll,
    Detail,
    Reconnect,
    // Launch
    NextField,
    PrevField,
    Older,
    Newer,
    Start,
    // Run
    NextPane,
    RankLog,
    AllRanks,
    Search,
    Follow,
    Timeline,
    Trace,
    Stacks,
    Stop,
    ZoomIn,
    ZoomOut,
    // Run and Runs
    Again,
    // Runs
    Open,
    OpenReplay,
    Refresh,
    // Replay
    PlayPause,
    SeekBack,
    SeekForward,
    PageBack,
    PageForward,
    StepBack,
    StepForward,
    Faster,
    Slower,
    GoTo,
    ToStart,
    ToEnd,
}

/// Where a binding holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// On every screen but forms.
    Everywhere,
    /// On every list: Cluster, Detail, Run, Runs, Replay.
    Lists,
    /// On one screen.
    On(Screen),
    /// On Run and Replay.
    RunAndReplay,
}

/// One line of the table.
#[derive(Debug, Clone, Copy)]
pub struct Binding {
    /// Where it holds.
    pub scope: Scope,
    /// The keys, the first one is the one shown in the footer.
    pub keys: &'static [Key],
    /// What they mean.
    pub action: Action,
    /// One or two words for the footer; empty when it does not stand there.
    pub short: &'static str,
    /// The sentence of the help screen.
    pub help: &'static str,
}

const fn c(c: char) -> Key {
    Key::char(c)
}
const fn k(code: KeyCode) -> Key {
    Key::plain(code)
}
const fn bind(
    scope: Scope,
    keys: &'static [Key],
    action: Action,
    short: &'static str,
    help: &'static str,
) -> Binding {
    Binding { scope, keys, action, short, help }
}

const DIGITS: &[Key] = &[c('0'), c('1'), c('2'), c('3'), c('4'), c('5'), c('6'), c('7'), c('8'), c('9')];
const CLUSTER: Scope = Scope::On(Screen::Cluster);
const DETAIL: Scope = Scope::On(Screen::Detail);
const LAUNCH: Scope = Scope::On(Screen::Launch);
const RUN: Scope = Scope::On(Screen::Run);
const RUNS: Scope = Scope::On(Screen::Runs);
const REPLAY: Scope = Scope::On(Screen::Replay);

/// The table. Within a screen the order is the footer's.
pub const BINDINGS: &[Binding] = &[
    bind(
        CLUSTER,
        &[c(' ')],
        Action::Pick,
        "pick",
        "pick this GPU; on a host line all its free GPUs, or one CPU slot more",
    ),
    bind(
        CLUSTER,
        &[c('f')],
        Action::PickFree,
        "free N",
        "pick N free slots: type the number first, or be asked",
    ),
    bind(CLUSTER, &[c('l')], Action::Launch, "launch", "launch a run on the picks"),
    bind(
        CLUSTER,
        &[c('/')],
        Action::Filter,
        "filter",
        "filter: free, util<5 & mem_free>40G & host~a; fields util mem mem_free temp power host model user cmd",
    ),
    bind(CLUSTER, &[c('s')], Action::Sort, "sort", "order hosts by file, name, least busy, most free memory"),
    bind(CLUSTER, &[c('z')], Action::Fold, "fold", "fold or unfold the host"),
    bind(CLUSTER, &[k(KeyCode::Enter)], Action::Detail, "detail", "history, facts and processes of the row"),
    bind(CLUSTER, DIGITS, Action::Count, "", "the number for f"),
    bind(CLUSTER, &[c('-')], Action::FewerSlots, "", "one CPU slot less on this host"),
    bind(CLUSTER, &[c('+'), c('=')], Action::MoreSlots, "", "one CPU slot more on this host"),
    bind(
        CLUSTER,
        &[c('u'), k(KeyCode::Esc)],
        Action::Unpick,
        "",
        "drop all picks; esc drops the filter first",
    ),
    bind(CLUSTER, &[c('Z')], Action::FoldAll, "", "fold or unfold all hosts"),
    bind(CLUSTER, &[c('R')], Action::Reconnect, "", "try this host again now"),
    bind(CLUSTER, &[c('o')], Action::LatestRun, "", "the newest run"),
    bind(DETAIL, &[k(KeyCode::Esc), c('d'), k(KeyCode::Enter)], Action::Back, "back", "back to the cluster"),
    bind(DETAIL, &[c('R')], Action::Reconnect, "reconnect", "try this host again now"),
    bind(LAUNCH, &[k(KeyCode::Enter)], Action::Start, "start", "start the run, once nothing is red"),
    bind(LAUNCH, &[k(KeyCode::Tab), k(KeyCode::Down)], Action::NextField, "next", "next field"),
    bind(LAUNCH, &[k(KeyCode::BackTab), k(KeyCode::Up)], Action::PrevField, "previous", "previous field"),
    bind(
        LAUNCH,
        &[Key::ctrl('p')],
        Action::Older,
        "history",
        "the launch before this one, then the commands of recorded runs",
    ),
    bind(LAUNCH, &[Key::ctrl('n')], Action::Newer, "", "back to newer ones, last to what you were writing"),
    bind(LAUNCH, &[k(KeyCode::Esc)], Action::Back, "back", "back to the cluster; what you typed stays"),
    bind(LAUNCH, &[k(KeyCode::F(1))], Action::Help, "help", "this help"),
    bind(LAUNCH, &[Key::ctrl('c')], Action::Quit, "", "quit; runs go on"),
    bind(RUN, &[k(KeyCode::Tab)], Action::NextPane, "ranks/logs", "move between ranks and logs"),
    bind(RUN, &[c('t')], Action::Timeline, "timeline", "show or hide the timeline"),
    bind(RUN, &[c('x')], Action::Stop, "stop", "stop the run (asks first)"),
    bind(
        RUN,
        &[c('S')],
        Action::Stacks,
        "stacks",
        "where every rank is just now: the stacks of their Pythons side by side",
    ),
    bind(RUN, &[c('d'), k(KeyCode::Esc)], Action::Back, "detach", "leave this screen; the run goes on"),
    bind(RUN, &[c('/')], Action::Search, "search", "only log lines that contain a text"),
    bind(RUN, &[c('f'), k(KeyCode::End), c('G')], Action::Follow, "follow", "follow the newest line"),
    bind(RUN, DIGITS, Action::RankLog, "rank log", "log of rank 0-9 alone; enter does it for any rank"),
    bind(RUN, &[c('A')], Action::AllRanks, "all logs", "log of all ranks"),
    bind(RUN, &[c('T')], Action::Trace, "", "kernel trace of 3 steps into a file (run --traceable)"),
    bind(RUN, &[c('a')], Action::Again, "again", "edit this launch and start it again"),
    bind(RUN, &[k(KeyCode::Enter)], Action::Open, "", "log of the selected rank alone"),
    bind(
        RUNS,
        &[k(KeyCode::Enter)],
        Action::Open,
        "open",
        "a run that goes on: its screen, taken up where nobody follows it; an ended one: its replay",
    ),
    bind(RUNS, &[c('p')], Action::OpenReplay, "replay", "replay what is recorded so far"),
    bind(RUNS, &[c('e'), c('a')], Action::Again, "again", "edit this launch and start it again"),
    bind(RUNS, &[c('/')], Action::Search, "filter", "only runs whose name, id or command contains a text"),
    bind(RUNS, &[c('x')], Action::Stop, "stop", "stop the run (asks first)"),
    bind(RUNS, &[c('R')], Action::Refresh, "refresh", "read the recordings again and ask the hosts"),
    bind(RUNS, &[k(KeyCode::Esc)], Action::Back, "back", "back to the cluster"),
    bind(REPLAY, &[c(' ')], Action::PlayPause, "play", "play or pause"),
    bind(REPLAY, &[c('h'), k(KeyCode::Left)], Action::SeekBack, "back", "a tenth of the window back"),
    bind(
        REPLAY,
        &[c('l'), k(KeyCode::Right)],
        Action::SeekForward,
        "forward",
        "a tenth of the window forward",
    ),
    bind(REPLAY, &[c('[')], Action::StepBack, "step -", "one training step back"),
    bind(REPLAY, &[c(']')], Action::StepForward, "step +", "one training step forward"),
    bind(REPLAY, &[c('g')], Action::GoTo, "go to", "go to 14:32:05, +90s, -10s, 50% or step 812"),
    bind(REPLAY, &[k(KeyCode::Esc), c('d')], Action::Back, "close", "close the replay"),
    bind(REPLAY, &[c('+'), c('=')], Action::Faster, "faster", "play twice as fast"),
    bind(REPLAY, &[c('-')], Action::Slower, "slower", "play half as fast"),
    bind(REPLAY, &[c('H')], Action::PageBack, "", "a whole window back"),
    bind(REPLAY, &[c('L')], Action::PageForward, "", "a whole window forward"),
    bind(REPLAY, &[k(KeyCode::Home)], Action::ToStart, "", "to the start"),
    bind(REPLAY, &[k(KeyCode::End)], Action::ToEnd, "", "to the end"),
    bind(REPLAY, &[k(KeyCode::Tab)], Action::NextPane, "", "move between ranks and logs"),
    bind(REPLAY, DIGITS, Action::RankLog, "", "log of rank 0-9 alone"),
    bind(REPLAY, &[c('A')], Action::AllRanks, "", "log of all ranks"),
    bind(REPLAY, &[c('/')], Action::Search, "", "only log lines that contain a text"),
    bind(REPLAY, &[c('f')], Action::Follow, "", "keep the log at the playhead"),
    bind(REPLAY, &[k(KeyCode::Enter)], Action::Open, "", "log of the selected rank alone"),
    bind(Scope::RunAndReplay, &[c('w')], Action::ZoomIn, "", "timeline: half the window"),
    bind(Scope::RunAndReplay, &[c('s')], Action::ZoomOut, "", "timeline: twice the window"),
    bind(Scope::Lists, &[k(KeyCode::Up), c('k')], Action::Up, "", "up"),
    bind(Scope::Lists, &[k(KeyCode::Down), c('j')], Action::Down, "", "down"),
    bind(Scope::Lists, &[k(KeyCode::PageUp), Key::ctrl('u')], Action::PageUp, "", "a page up"),
    bind(Scope::Lists, &[k(KeyCode::PageDown), Key::ctrl('d')], Action::PageDown, "", "a page down"),
    bind(Scope::Lists, &[k(KeyCode::Home), c('g')], Action::Top, "", "to the first"),
    bind(Scope::Lists, &[k(KeyCode::End), c('G')], Action::Bottom, "", "to the last"),
    bind(Scope::Everywhere, &[c('c')], Action::Cluster, "", "the Cluster screen"),
    bind(Scope::Everywhere, &[c('r')], Action::Runs, "", "the Runs screen"),
    bind(Scope::Everywhere, &[c('?'), k(KeyCode::F(1))], Action::Help, "help", "this help"),
    bind(Scope::Everywhere, &[c('q'), Key::ctrl('c')], Action::Quit, "quit", "quit; runs go on"),
];

impl Scope {
    /// Whether it takes in a screen.
    pub fn holds_on(self, screen: Screen) -> bool {
        match self {
            Self::On(own) => own == screen,
            Self::RunAndReplay => matches!(screen, Screen::Run | Screen::Replay),
            Self::Lists | Self::Everywhere => screen != Screen::Launch,
        }
    }
}

/// The bindings that hold on a screen, its own first.
pub fn bindings(screen: Screen) -> impl Iterator<Item = &'static Binding> {
    BINDINGS.iter().filter(move |binding| binding.scope.holds_on(screen))
}

/// What a key means on a screen.
pub fn lookup(screen: Screen, key: Key) -> Option<Action> {
    bindings(screen).find(|binding| binding.keys.contains(&key)).map(|binding| binding.action)
}

impl Binding {
    /// The keys as people read them: `h ←`, `0-9`.
    pub fn keys_text(&self) -> String {
        if self.keys == DIGITS {
            return "0-9".to_owned();
        }
        self.keys.iter().map(|key| key.name()).collect::<Vec<_>>().join(" ")
    }

    /// The first key as the footer shows it.
    pub fn first_key(&self) -> String {
        if self.keys == DIGITS {
            "0-9".to_owned()
        } else {
            self.keys.first().map_or_else(String::new, |key| key.name())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCREENS: [Screen; 6] =
        [Screen::Cluster, Screen::Detail, Screen::Launch, Screen::Run, Screen::Runs, Screen::Replay];

    #[test]
    fn no_key_means_two_things_on_one_screen() {
        for screen in SCREENS {
            let own: Vec<&Binding> = BINDINGS.iter().filter(|b| b.scope == Scope::On(screen)).collect();
            for (at, binding) in own.iter().enumerate() {
                for other in &own[at + 1..] {
                    assert!(
                        !binding.keys.iter().any(|key| other.keys.contains(key)),
                        "{screen:?}: {binding:?} {other:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn every_screen_can_be_left_and_explained() {
        for screen in SCREENS {
            assert!(bindings(screen).any(|b| b.action == Action::Help), "{screen:?}");
            assert!(bindings(screen).any(|b| b.action == Action::Quit), "{screen:?}");
        }
        assert_eq!(lookup(Screen::Launch, Key::char('q')), None);
    }
}
