//! Who is asked when ssh needs a person: a queue of questions, and what was answered for the rest of the session.
//!
//! Knows nothing of terminals or screens: the holder of the other end of the queue shows the questions one after
//! the other. What is remembered, unlocked keys and host keys that no file could take, lives in memory alone.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as Turn, MutexGuard as TurnGuard, mpsc, oneshot};
use tokio::time::sleep;

use crate::domain::question::{Answer, Question};
use crate::ssh::trust::{HostKey, HostName};

/// What comes out of the queue.
#[derive(Debug)]
pub enum Asked {
    /// A question; a sender that is dropped refuses it.
    Question(Question, oneshot::Sender<Answer>),
    /// Something that a person should know.
    Note(String),
}

/// The questions, in order.
pub type Questions = mpsc::UnboundedReceiver<Asked>;

/// The way to a person. Clones ask the same one and share what was answered.
#[derive(Clone)]
pub struct Prompter(Arc<Inner>);

struct Inner {
    /// The error: why no user can be asked.
    queue: Result<mpsc::UnboundedSender<Asked>, String>,
    open: Busy,
    /// What was made of the answers, one value of each type: unlocked keys, logins at jump hosts.
    kept: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
    /// Whose question about a host key it is.
    key_turn: Turn<()>,
    /// Keys that a person trusts and no file could take.
    pinned: Mutex<Vec<(HostName, HostKey)>>,
}

impl Prompter {
    /// A way to the reader of the queue.
    pub fn new() -> (Self, Questions) {
        let (sender, questions) = mpsc::unbounded_channel();
        (Self::with(Ok(sender)), questions)
    }

    /// No user can be asked, for this reason: `no terminal to ask on`.
    pub fn unavailable(why: impl Into<String>) -> Self {
        Self::with(Err(why.into()))
    }

    fn with(queue: Result<mpsc::UnboundedSender<Asked>, String>) -> Self {
        Self(Arc::new(Inner {
            queue,
            open: Busy::default(),
            kept: Mutex::default(),
            key_turn: Turn::default(),
            pinned: Mutex::default(),
        }))
    }

    /// Why no user can be asked; `None` if one can.
    pub(super) fn absent(&self) -> Option<&str> {
        self.0.queue.as_ref().err().map(String::as_str)
    }

    /// Asks and waits, as long as it takes; `busy` is the connection that waits with it.
    pub(super) async fn ask(&self, busy: &Busy, question: Question) -> Answer {
        let queue = match &self.0.queue {
            Ok(queue) => queue,
            Err(why) => return Answer::Unable(why.clone()),
        };
        let _open = (busy.enter(), self.0.open.enter());
        let (sender, answer) = oneshot::channel();
        if queue.send(Asked::Question(question, sender)).is_err() {
            return Answer::Unable("the program that shows questions has ended".to_owned());
        }
        answer.await.unwrap_or(Answer::No)
    }

    /// Tells a person something, where there is one.
    pub(super) fn tell(&self, text: String) {
        tracing::info!(text, "told");
        if let Ok(queue) = &self.0.queue {
            // the reader may be gone
            let _ = queue.send(Asked::Note(text));
        }
    }

    /// Whether a question is open.
    pub fn is_asking(&self) -> bool {
        self.0.open.now()
    }

    /// Waits for `future`, but no longer than `limit` in which no question was open.
    pub async fn timeout<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        self.0.open.timeout(limit, future).await
    }

    /// The one value of this type that lives as long as the answers do. What it is, its own module knows.
    pub(super) fn kept<T: Any + Default + Send + Sync>(&self) -> Arc<T> {
        let mut kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.iter().find_map(|value| Arc::clone(value).downcast::<T>().ok());
        known.unwrap_or_else(|| {
            let value = Arc::<T>::default();
            kept.push(value.clone());
            value
        })
    }

    /// Waits for the turn to ask about a host key.
    pub(super) async fn key_turn(&self) -> TurnGuard<'_, ()> {
        self.0.key_turn.lock().await
    }

    /// Trusts a host's key until the program ends.
    pub(super) fn pin(&self, name: HostName, key: HostKey) {
        self.pins().push((name, key));
    }

    /// Leaves it to the files.
    pub(super) fn unpin(&self, name: &HostName, key: &HostKey) {
        let mut pins = self.pins();
        if let Some(place) = pins.iter().position(|(host, pinned)| host == name && pinned == key) {
            pins.remove(place);
        }
    }

    pub(super) fn is_pinned(&self, name: &HostName, key: &HostKey) -> bool {
        self.pins().iter().any(|(host, pinned)| host == name && pinned == key)
    }

    fn pins(&self) -> std::sync::MutexGuard<'_, Vec<(HostName, HostKey)>> {
        self.0.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Prompter {
    fn default() -> Self {
        Self::unavailable("questions cannot be shown here")
    }
}

impl PartialEq for Prompter {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Prompter {}

impl fmt::Debug for Prompter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prompter").field("absent", &self.absent()).finish_non_exhaustive()
    }
}

/// How many questions are open, and how many were.
#[derive(Clone, Default)]
pub(super) struct Busy(Arc<Counts>);

#[derive(Default)]
struct Counts {
    open: AtomicUsize,
    ever: AtomicUsize,
}

impl Busy {
    /// A question is open as long as the guard lives.
    pub(super) fn enter(&self) -> BusyGuard {
        self.0.ever.fetch_add(1, Ordering::Relaxed);
        self.wait()
    }

    fn now(&self) -> bool {
        self.0.open.load(Ordering::Relaxed) > 0
    }

    /// A person is waited for, but not asked: to touch a device.
    pub(super) fn wait(&self) -> BusyGuard {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        BusyGuard(self.clone())
    }

    /// Whether a question was ever open.
    pub(super) fn ever(&self) -> bool {
        self.0.ever.load(Ordering::Relaxed) > 0
    }

    /// Waits for `future`, but no longer than `limit` in which no question was open.
    pub(super) async fn timeout<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        let step = (limit / 20).clamp(Duration::from_millis(5), Duration::from_millis(100));
        let mut left = limit;
        tokio::pin!(future);
        loop {
            tokio::select! {
                biased;
                done = &mut future => return Some(done),
                () = sleep(step) => {
                    if !self.now() {
                        left = left.saturating_sub(step);
                    }
                }
            }
            if left.is_zero() {
                return None;
            }
        }
    }
}

/// An open question.
pub(super) struct BusyGuard(Busy);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::question::Subject;
    use crate::domain::secret::Secret;

    fn password() -> Question {
        Question { host: "a".into(), to: "li@a:22".into(), subject: Subject::Password, note: None }
    }

    #[tokio::test]
    async fn time_at_a_question_does_not_count() {
        let busy = Busy::default();
        let open = busy.enter();
        let person = async {
            sleep(Duration::from_millis(300)).await;
            drop(open);
        };
        assert_eq!(busy.timeout(Duration::from_millis(50), person).await, Some(()));
        assert!(busy.ever());
        let never = std::future::pending::<()>();
        assert_eq!(busy.timeout(Duration::from_millis(50), never).await, None);
    }

    #[tokio::test]
    async fn answers_come_back_and_a_dropped_question_is_refused() {
        let (prompter, mut questions) = Prompter::new();
        let busy = Busy::default();
        let person = async {
            for give in [true, false] {
                let Some(Asked::Question(_, answer)) = questions.recv().await else { panic!("no question") };
                if give {
                    answer.send(Answer::Text(Secret::new("x".into()))).unwrap();
                }
            }
        };
        let both = async { (prompter.ask(&busy, password()).await, prompter.ask(&busy, password()).await) };
        let (answers, ()) = tokio::join!(both, person);
        assert_eq!(answers, (Answer::Text(Secret::new("x".into())), Answer::No));
        assert!(!prompter.is_asking());
    }

    #[tokio::test]
    async fn an_unavailable_prompter_answers_at_once() {
        let busy = Busy::default();
        let prompter = Prompter::unavailable("no terminal");
        assert_eq!(prompter.ask(&busy, password()).await, Answer::Unable("no terminal".into()));
        let (prompter, questions) = Prompter::new();
        drop(questions);
        assert!(matches!(prompter.ask(&busy, password()).await, Answer::Unable(_)));
        assert!(!format!("{prompter:?}").contains("kept"));
    }

    #[test]
    fn clones_share_one_value_of_each_type_and_prompters_none() {
        #[derive(Default)]
        struct Names(Mutex<Vec<&'static str>>);
        let (prompter, other) = (Prompter::default(), Prompter::default());
        let names = |of: &Prompter| of.kept::<Names>().0.lock().unwrap().clone();
        prompter.kept::<Names>().0.lock().unwrap().push("a");
        assert_eq!(prompter.kept::<AtomicUsize>().fetch_add(1, Ordering::Relaxed), 0);
        prompter.clone().kept::<Names>().0.lock().unwrap().push("b");
        assert_eq!((names(&prompter), names(&other)), (vec!["a", "b"], vec![]));
        assert_eq!(prompter.kept::<AtomicUsize>().load(Ordering::Relaxed), 1);
    }
}
