//! A command line, as a process shows it: arguments, options and their values.
//!
//! What is kept of it for people has the values of secret options struck out, and is bounded.

/// Longer command lines are cut for the database; the instance is found in the whole of what was read.
const SHOWN_MAX: usize = 4096;

/// Options whose value is nobody's business: any that has one of these in its name.
const SECRET: [&str; 4] = ["token", "secret", "password", "passphrase"];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    words: Vec<String>,
}

impl Arguments {
    /// From `/proc/PID/cmdline`: words that end in NUL. A kernel thread has none. Trailing empty ones are what is left
    /// where a process has written a shorter title over its command line.
    pub(crate) fn from_kernel(text: &[u8]) -> Arguments {
        let mut words: Vec<String> = text
            .split(|byte| *byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        while words.last().is_some_and(String::is_empty) {
            words.pop();
        }
        Arguments { words }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    fn rest(&self) -> impl Iterator<Item = &str> {
        self.words.iter().skip(1).map(String::as_str)
    }

    /// The value of the last of `names` that is given: `-i 3`, `-i3`, `-i=3`, `--id 3`, `--id=3`.
    pub(crate) fn option(&self, names: &[&str]) -> Option<&str> {
        let mut found = None;
        let mut words = self.rest().peekable();
        while let Some(word) = words.next() {
            for name in names {
                let Some(attached) = word.strip_prefix(name) else {
                    continue;
                };
                found = match attached.strip_prefix('=') {
                    Some(value) => Some(value),
                    None if attached.is_empty() => words.peek().copied().or(found),
                    None if is_short(name) => Some(attached),
                    None => found,
                };
            }
        }
        found.filter(|value| !value.is_empty())
    }

    /// Words that are neither options nor values of the options in `valued`.
    pub(crate) fn operands(&self, valued: &[&str]) -> Vec<&str> {
        let mut operands = Vec::new();
        let mut words = self.rest();
        while let Some(word) = words.next() {
            if word == "--" {
                operands.extend(words.by_ref());
            } else if word.len() < 2 || !word.starts_with('-') {
                operands.push(word);
            } else if valued.contains(&word) {
                words.next();
            }
        }
        operands
    }

    /// Joined by blanks, as people read it.
    pub(crate) fn shown(&self) -> String {
        let mut shown = String::new();
        let mut strike_next = false;
        for (place, word) in self.words.iter().enumerate() {
            if place > 0 {
                shown.push(' ');
            }
            if std::mem::take(&mut strike_next) {
                shown.push_str("***");
                continue;
            }
            match word.split_once('=') {
                Some((name, _)) if is_secret(name) => {
                    shown.push_str(name);
                    shown.push_str("=***");
                }
                _ => {
                    strike_next = is_secret(word);
                    shown.push_str(word);
                }
            }
        }
        let shown: String = shown
            .chars()
            .map(|char| if char.is_control() { ' ' } else { char })
            .collect();
        cut(shown, SHOWN_MAX)
    }

    /// All of it in one line, for patterns.
    pub(crate) fn joined(&self) -> String {
        self.words.join(" ")
    }
}

/// Shortened to at most `most` bytes, between two characters.
pub(crate) fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = (0..=most)
            .rev()
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or(0);
        text.truncate(end);
    }
    text
}

fn is_short(name: &str) -> bool {
    name.len() == 2 && name != "--"
}

fn is_secret(word: &str) -> bool {
    let name = word.to_ascii_lowercase();
    name.starts_with('-') && SECRET.iter().any(|secret| name.contains(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Arguments {
        Arguments::from_kernel(line.replace(' ', "\0").as_bytes())
    }

    #[test]
    fn options_in_all_their_forms() {
        for line in [
            "d -i 3",
            "d -i3",
            "d -i=3",
            "d --id 3",
            "d --id=3",
            "d -i 7 -x --id=3",
            "d -f -i 3 --cluster x",
        ] {
            assert_eq!(words(line).option(&["-i", "--id"]), Some("3"), "{line}");
        }
        for line in ["d", "d -i", "d --identity 3", "d --id=", "-i 3"] {
            assert_eq!(words(line).option(&["-i", "--id"]), None, "{line}");
        }
    }

    #[test]
    fn operands_leave_values_out() {
        let line =
            words("ceph-fuse -c /etc/c.conf -n client.a --pid-file=/run/p -o rw /mnt -- -odd");
        assert_eq!(line.operands(&["-c", "-n", "-o"]), ["/mnt", "-odd"]);
    }

    #[test]
    fn secrets_are_struck_out() {
        let line = words("benchmesh agent --token abc --join-token=def --name n1 --Password x");
        assert_eq!(
            line.shown(),
            "benchmesh agent --token *** --join-token=*** --name n1 --Password ***"
        );
    }

    #[test]
    fn a_title_written_over_the_command_line() {
        let line = Arguments::from_kernel(b"mfsmount (mounted on: /mnt/mfs)\0\0\0\0\0");
        assert_eq!(line.shown(), "mfsmount (mounted on: /mnt/mfs)");
        assert!(Arguments::from_kernel(b"").is_empty());
    }

    #[test]
    fn what_is_shown_is_bounded_and_clean() {
        let long = Arguments::from_kernel("\u{e9}".repeat(SHOWN_MAX).as_bytes());
        assert!(long.shown().len() <= SHOWN_MAX);
        assert_eq!(
            Arguments::from_kernel(b"a\nb\x1b[31m\0\xff\0").shown(),
            "a b [31m \u{fffd}"
        );
    }
}
