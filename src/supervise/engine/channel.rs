//! The connection between a launcher's wrapper and a node on another host: both prove that they have the run's
//! secret before either believes a byte, and each message afterwards proves its place on this very connection.
//!
//! ```text
//! wrapper → node      magic · nonce_w                          8 + 32 bytes
//! node → wrapper      nonce_n · length · name · MAC(node)     32 + 1 + length + 32 bytes
//! wrapper → node      MAC(wrapper)                             32 bytes
//! then, each way      length · message · MAC(direction, count, message)
//! ```
//!
//! What is said is not encrypted: commands and their output hold no secret. Knows nothing of what the messages mean.

use std::io;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const MAGIC: &[u8; 8] = b"hvtui n1";
const NONCE: usize = 32;
/// The most bytes of one message: a command of mpirun's is a few hundred.
const MOST: usize = 1 << 20;

/// The run's secret, as a key for this purpose alone.
#[derive(Clone)]
pub(super) struct Key(hmac::Key);

impl Key {
    /// From the text of the run's secret.
    pub(super) fn new(secret: &str) -> Self {
        let run = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        Self(hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&run, b"hvtui node 1").as_ref()))
    }

    fn sign(&self, label: &[u8], parts: &[&[u8]]) -> hmac::Tag {
        hmac::sign(&self.0, &[label, &parts.concat()].concat())
    }

    fn verify(&self, label: &[u8], parts: &[&[u8]], tag: &[u8]) -> bool {
        hmac::verify(&self.0, &[label, &parts.concat()].concat(), tag).is_ok()
    }

    fn session(&self, direction: &[u8], parts: &[&[u8]]) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.sign(direction, parts).as_ref())
    }
}

/// The half of a proven connection that speaks.
pub(super) struct Speaker<W> {
    writer: W,
    key: hmac::Key,
    count: u64,
}

/// The half that hears.
pub(super) struct Hearer<R> {
    reader: R,
    key: hmac::Key,
    count: u64,
}

fn nonce() -> io::Result<[u8; NONCE]> {
    let mut bytes = [0; NONCE];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the system gives no random bytes"))?;
    Ok(bytes)
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned())
}

/// The wrapper's side: who has connected, by the name that it proves. One that has not the secret gets nothing.
pub(super) async fn accept<R, W>(
    mut reader: R,
    mut writer: W,
    key: &Key,
) -> io::Result<(String, Hearer<R>, Speaker<W>)>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let ours = nonce()?;
    writer.write_all(&[&MAGIC[..], &ours].concat()).await?;
    writer.flush().await?;
    let mut theirs = [0; NONCE];
    reader.read_exact(&mut theirs).await?;
    let mut name = vec![0; usize::from(reader.read_u8().await?)];
    reader.read_exact(&mut name).await?;
    let mut tag = [0; NONCE];
    reader.read_exact(&mut tag).await?;
    let parts: [&[u8]; 3] = [&ours, &theirs, &name];
    if !key.verify(b"node", &parts, &tag) {
        return Err(refused("the peer does not have the run's secret"));
    }
    writer.write_all(key.sign(b"wrap", &parts).as_ref()).await?;
    writer.flush().await?;
    let hearer = Hearer { reader, key: key.session(b"to wrap", &parts), count: 0 };
    let speaker = Speaker { writer, key: key.session(b"to node", &parts), count: 0 };
    let name = String::from_utf8(name).map_err(|_| refused("a node's name is no text"))?;
    Ok((name, hearer, speaker))
}

/// The node's side. Nothing is executed for one that has not the secret.
pub(super) async fn connect<R, W>(
    mut reader: R,
    mut writer: W,
    key: &Key,
    name: &str,
) -> io::Result<(Hearer<R>, Speaker<W>)>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut magic = [0; 8];
    reader.read_exact(&mut magic).await?;
    if magic != *MAGIC {
        return Err(refused("it is no launcher of this version of hvtui"));
    }
    let mut theirs = [0; NONCE];
    reader.read_exact(&mut theirs).await?;
    let ours = nonce()?;
    let length = u8::try_from(name.len()).map_err(|_| refused("the node's name is too long"))?;
    let parts: [&[u8]; 3] = [&theirs, &ours, name.as_bytes()];
    let proof = key.sign(b"node", &parts);
    writer.write_all(&[&ours[..], &[length], name.as_bytes(), proof.as_ref()].concat()).await?;
    writer.flush().await?;
    let mut tag = [0; NONCE];
    reader.read_exact(&mut tag).await?;
    if !key.verify(b"wrap", &parts, &tag) {
        return Err(refused("it has not the run's secret"));
    }
    let hearer = Hearer { reader, key: key.session(b"to node", &parts), count: 0 };
    let speaker = Speaker { writer, key: key.session(b"to wrap", &parts), count: 0 };
    Ok((hearer, speaker))
}

fn proof(key: &hmac::Key, count: u64, body: &[u8]) -> hmac::Tag {
    hmac::sign(key, &[&count.to_le_bytes()[..], body].concat())
}

impl<W: AsyncWrite + Unpin> Speaker<W> {
    pub(super) async fn say(&mut self, body: &[u8]) -> io::Result<()> {
        let length = u32::try_from(body.len()).ok().filter(|length| *length as usize <= MOST);
        let length = length.ok_or_else(|| io::Error::other("the message is too long"))?;
        let tag = proof(&self.key, self.count, body);
        self.count += 1;
        self.writer.write_all(&[&length.to_le_bytes()[..], body, tag.as_ref()].concat()).await?;
        self.writer.flush().await
    }
}

impl<R: AsyncRead + Unpin> Hearer<R> {
    /// The next message; `None` when the connection has ended. Not to be cancelled.
    pub(super) async fn hear(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut length = [0; 4];
        match self.reader.read_exact(&mut length).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        let length = u32::from_le_bytes(length) as usize;
        if length > MOST {
            return Err(refused("a message is too long"));
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body).await?;
        let mut tag = [0; NONCE];
        self.reader.read_exact(&mut tag).await?;
        let signed = [&self.count.to_le_bytes()[..], &body].concat();
        hmac::verify(&self.key, &signed, &tag)
            .map_err(|_| refused("a message was not said by the other end"))?;
        self.count += 1;
        Ok(Some(body))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex, split};

    use super::*;

    fn key(secret: &str) -> Key {
        Key::new(&secret.repeat(32))
    }

    async fn meet(a: &str, b: &str) -> (io::Result<String>, io::Result<()>) {
        let (ours, theirs): (DuplexStream, DuplexStream) = duplex(4096);
        let (reader, writer) = split(ours);
        let (far_reader, far_writer) = split(theirs);
        let (a, b) = (key(a), key(b));
        let (accepted, connected) =
            tokio::join!(accept(reader, writer, &a), connect(far_reader, far_writer, &b, "10.0.0.2"));
        (accepted.map(|(name, ..)| name), connected.map(drop))
    }

    #[tokio::test]
    async fn only_who_has_the_secret_is_heard() {
        let (name, node) = meet("ab", "ab").await;
        assert_eq!(name.unwrap(), "10.0.0.2");
        assert!(node.is_ok());
        let (name, node) = meet("ab", "cd").await;
        assert_eq!(name.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(node.is_err(), "the node gets no proof and no order");
    }

    #[tokio::test]
    async fn a_node_takes_no_order_from_one_that_throws_its_own_proof_back() {
        let (ours, theirs) = duplex(4096);
        let (mut reader, mut writer) = split(ours);
        let (far_reader, far_writer) = split(theirs);
        let liar = async move {
            writer.write_all(&[&MAGIC[..], &[1; NONCE]].concat()).await.unwrap();
            let mut hello = [0; NONCE + 1 + 1 + NONCE];
            reader.read_exact(&mut hello).await.unwrap();
            writer.write_all(&hello[NONCE + 2..]).await.unwrap();
        };
        let key = key("ab");
        let (connected, ()) = tokio::join!(connect(far_reader, far_writer, &key, "n"), liar);
        assert_eq!(connected.map(drop).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[tokio::test]
    async fn a_message_that_is_bent_repeated_or_turned_round_is_refused() {
        let session = key("ab").session(b"to node", &[b"x"]);
        let mut speaker = Speaker { writer: Vec::new(), key: session.clone(), count: 0 };
        speaker.say(b"one").await.unwrap();
        speaker.say(b"two").await.unwrap();
        let said = speaker.writer;
        let hear = |bytes: Vec<u8>, key: hmac::Key| async move {
            let mut hearer = Hearer { reader: io::Cursor::new(bytes), key, count: 0 };
            let mut heard = Vec::new();
            while let Some(body) = hearer.hear().await? {
                heard.push(body);
            }
            io::Result::Ok(heard)
        };
        assert_eq!(hear(said.clone(), session.clone()).await.unwrap(), [b"one".to_vec(), b"two".to_vec()]);
        let one = said[..said.len() / 2].to_vec();
        assert!(hear([one.clone(), one].concat(), session.clone()).await.is_err(), "said once");
        assert!(hear(said.clone(), key("ab").session(b"to wrap", &[b"x"])).await.is_err(), "the other way");
        for at in 4..said.len() / 2 {
            let mut bent = said.clone();
            bent[at] ^= 1;
            assert!(hear(bent, session.clone()).await.is_err(), "byte {at}");
        }
    }
}
