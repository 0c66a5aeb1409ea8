//! Calling another rank's guarded port until it answers.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::acceptor::HANDSHAKE;
use super::auth::{self, Caller, Endpoint, NONCE, Secret};
use super::deadline::Deadline;
use super::error::CollectiveError;
use super::socket;

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A call: whose endpoint, who calls, where, and until when.
pub(super) struct Call<'a> {
    pub(super) secret: &'a Secret,
    pub(super) endpoint: Endpoint,
    pub(super) caller: Caller,
    pub(super) to: SocketAddr,
    pub(super) deadline: Deadline,
    /// What the deadline was, for the error.
    pub(super) seconds: u64,
}

enum Attempt {
    /// The owner knows us not; another attempt would end the same.
    Refused,
    /// It may go better the next time.
    Failed(String),
}

impl Call<'_> {
    /// Tries until the other side has answered with its proof. `between` is called before each pause; when it
    /// says `false` the call is given up.
    pub(super) fn place(&self, mut between: impl FnMut() -> bool) -> Result<TcpStream, CollectiveError> {
        let (from, to, address) = (self.caller.rank, self.endpoint.owner, self.to);
        let mut pause = FIRST_PAUSE;
        loop {
            let reason = match self.attempt() {
                Ok(stream) => return Ok(stream),
                Err(Attempt::Refused) => return Err(CollectiveError::Refused { from, to, address }),
                Err(Attempt::Failed(reason)) => reason,
            };
            if self.deadline.passed() || !between() {
                return Err(CollectiveError::Unreachable {
                    from,
                    to,
                    address,
                    seconds: self.seconds,
                    reason,
                });
            }
            std::thread::sleep(pause.min(Duration::from_micros(self.deadline.remaining())));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn attempt(&self) -> Result<TcpStream, Attempt> {
        let failed = |error: std::io::Error| Attempt::Failed(error.to_string());
        let deadline = self.deadline.within(HANDSHAKE);
        // A timeout of zero is not a timeout but an error.
        let patience = Duration::from_micros(deadline.remaining().max(1));
        let stream = TcpStream::connect_timeout(&self.to, patience).map_err(failed)?;
        socket::prepare(&stream).map_err(failed)?;
        let mut challenge = [0; NONCE];
        socket::read_all(&stream, &mut challenge, deadline).map_err(failed)?;
        let own =
            auth::nonce().ok_or_else(|| Attempt::Failed("the system gives no random bytes".to_owned()))?;
        let hello = auth::hello(self.secret, self.endpoint, self.caller, &challenge, &own);
        socket::write_all(&stream, &hello, deadline).map_err(failed)?;
        let mut answer = [0; NONCE];
        socket::read_all(&stream, &mut answer, deadline).map_err(failed)?;
        if answer == auth::REFUSAL {
            return Err(Attempt::Refused);
        }
        if !auth::check_answer(self.secret, self.endpoint, &challenge, &hello, &answer) {
            return Err(Attempt::Failed("who answers there does not know the run's secret".to_owned()));
        }
        Ok(stream)
    }
}
