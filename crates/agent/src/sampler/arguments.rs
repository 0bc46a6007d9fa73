//! A process's command line: arguments, options and their values.
//!
//! The text that is kept for users is bounded, and the values of secret options are struck out.

use super::secrets::{STRUCK, is_secret, without_secrets};

/// Longer command lines are cut for the database; the instance is taken from the whole text that was read.
const SHOWN_MAX: usize = 4096;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    words: Vec<String>,
}

impl Arguments {
    /// Parses `/proc/PID/cmdline`: words that end in NUL. A kernel thread has none. Trailing empty words remain where a
    /// process has written a shorter title over its command line, and are dropped.
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

    pub(crate) fn have_any(&self, options: &[&str]) -> bool {
        self.rest().any(|word| options.contains(&word))
    }

    /// The value of the last option given that is one of `names`: `-i 3`, `-i3`, `-i=3`, `--id 3`, `--id=3`.
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
            } else if valued.contains(&word) || valued.contains(&word.replace('_', "-").as_str()) {
                words.next();
            }
        }
        operands
    }

    /// The options that have values, as `getopt_long` reads them: `-np 7000`, `--por 7000`. `None` if an option is
    /// unknown, lacks its value, or is abbreviated ambiguously, because no value is certain then.
    pub(crate) fn getopt(&self, options: &[LongOption]) -> Option<Vec<(char, &str)>> {
        let mut given = Vec::new();
        let mut words = self.rest();
        while let Some(word) = words.next() {
            if word == "--" {
                break;
            }
            if let Some(long) = word.strip_prefix("--") {
                let (name, attached) = match long.split_once('=') {
                    Some((name, value)) => (name, Some(value)),
                    None => (long, None),
                };
                let (short, has_value) = long_option(options, name)?;
                if has_value {
                    given.push((short, attached.or_else(|| words.next())?));
                }
            } else if let Some(letters) = word.strip_prefix('-') {
                let mut rest = letters.chars();
                while let Some(letter) = rest.next() {
                    let (short, _, has_value) =
                        options.iter().find(|(short, ..)| *short == letter)?;
                    if *has_value {
                        let attached = Some(rest.as_str()).filter(|value| !value.is_empty());
                        given.push((*short, attached.or_else(|| words.next())?));
                        break;
                    }
                }
            }
        }
        Some(given)
    }

    /// Joined by spaces, with secrets struck out, for display.
    pub(crate) fn shown(&self) -> String {
        let mut shown = String::new();
        let mut strike_next = false;
        for (place, word) in self.words.iter().enumerate() {
            if place > 0 {
                shown.push(' ');
            }
            if std::mem::take(&mut strike_next) {
                shown.push_str(STRUCK);
                continue;
            }
            strike_next = word.starts_with('-') && !word.contains('=') && is_secret(word);
            shown.push_str(&without_secrets(word));
        }
        let shown: String = shown
            .chars()
            .map(|char| if char.is_control() { ' ' } else { char })
            .collect();
        cut(shown, SHOWN_MAX)
    }

    /// The whole command line as one string, for patterns.
    pub(crate) fn joined(&self) -> String {
        self.words.join(" ")
    }
}

/// An option of a program: its letter, its name, and whether a value follows.
pub(crate) type LongOption = (char, &'static str, bool);

/// Finds a long option; a name may be abbreviated to any unambiguous prefix.
fn long_option(options: &[LongOption], name: &str) -> Option<(char, bool)> {
    let meant = |(short, _, has_value): &LongOption| (*short, *has_value);
    if let Some(exact) = options.iter().find(|(_, long, _)| *long == name) {
        return Some(meant(exact));
    }
    let mut begun = options.iter().filter(|(_, long, _)| long.starts_with(name));
    match (begun.next(), begun.next()) {
        (Some(one), None) => Some(meant(one)),
        _ => None,
    }
}

/// Cuts the text to at most `most` bytes, between two characters.
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

#[cfg(test)]
mod tests {
    use super::*;
    use benchmesh_testing::table;
    use proptest::prelude::*;

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
    fn secrets_are_struck_out_wherever_they_stand() {
        for [line, expected] in table(
            r#"
            ceph-fuse --key=AQBx== /mnt                     | ceph-fuse --key=*** /mnt
            ceph-fuse --key AQBx== /mnt                     | ceph-fuse --key *** /mnt
            mount.ceph :/ /mnt -o name=admin,secret=AQBx,rw | mount.ceph :/ /mnt -o name=admin,secret=***,rw
            mount.cifs //h/s /mnt -ouser=u,password=p       | mount.cifs //h/s /mnt -ouser=u,password=***
            x --password=a,b=c                              | x --password=***
            juicefs mount redis://:pw@h:6379/1 /mnt         | juicefs mount redis://:***@h:6379/1 /mnt
            s3fs --url=https://u:p@h/b                      | s3fs --url=https://u:***@h/b
            env AWS_SECRET_ACCESS_KEY=k minio               | env AWS_SECRET_ACCESS_KEY=*** minio
            ceph-osd --keyring=/etc/k --keyfile /etc/f -o secretfile=/etc/s
                | ceph-osd --keyring=/etc/k --keyfile /etc/f -o secretfile=/etc/s
            d http://h:80/a                                 | d http://h:80/a
            juicefs mount redis://:a@h/1,redis://:b@h/2     | juicefs mount redis://:***@h/1,redis://:***@h/2
            d redis://:a/b@h/1                              | d redis://:***@h/1
            d redis://:a?b;c@h/1                            | d redis://:***@h/1
            d redis://:a://b@h/1                            | d redis://:***@h/1
            d jdbc:mysql://u:a@h/1                          | d jdbc:mysql://u:***@h/1
            d postgres://h/db?sslmode=x&password=y          | d postgres://h/db?sslmode=x&password=***
            d postgres://h:5/db?password=y@z&sslmode=x      | d postgres://h:***&sslmode=x
            d AccountName=n;AccountKey=k==;Protocol=https   | d AccountName=n;AccountKey=***;Protocol=https
            d PASSWORD=a,b&c                                | d PASSWORD=***
            benchmesh agent --join bmjoin-0a1b --name n     | benchmesh agent --join bmjoin-*** --name n
            ssh n1 benchmesh,agent,bmjoin-0a1b,x            | ssh n1 benchmesh,agent,bmjoin-***,x
            "#,
        ) {
            assert_eq!(words(&line).shown(), expected);
        }
    }

    /// Any user who may start a process can give it such a word. In quadratic time each would take hours.
    #[test]
    fn long_words_take_as_long_as_they_are() {
        for piece in [
            "-", "--pwd ", "--pwd '", "?key=a", ",key=", " key=\"", "a://u:p@", ",a://:",
            "bmjoin-", "=",
        ] {
            let word = piece.repeat((1 << 20) / piece.len());
            assert!(!without_secrets(&word).is_empty());
        }
    }

    /// `sh -c` and process titles have several arguments in one word.
    #[test]
    fn secrets_are_struck_out_within_a_word_of_several() {
        for (word, expected) in [
            ("d --token abc --name n", "d --token *** --name n"),
            ("host=h password=y user=u", "host=h password=*** user=u"),
            ("host=h password='a b' user=u", "host=h password=*** user=u"),
            ("mount -o user=u,password=p", "mount -o user=u,password=***"),
            ("sh -c x --key 'a b' -y", "sh -c x --key *** -y"),
        ] {
            assert_eq!(Arguments::from_kernel(word.as_bytes()).shown(), expected);
        }
    }

    proptest! {
        /// Replaces `SECRET` by any text, except for characters that would end a secret in this form.
        #[test]
        fn no_secret_survives(
            (form, ends) in prop::sample::select(FORMS.to_vec()),
            secret in "[!-~]{8,24}",
        ) {
            let secret: String = secret.chars().filter(|char| !ends.contains(*char)).collect();
            let secret = format!("QZQ{secret}QZQ");
            let line = form.replace("SECRET", &secret).replace(' ', "\0");
            let shown = Arguments::from_kernel(line.as_bytes()).shown();
            prop_assert!(!shown.contains("QZQ"), "{shown}");
        }
    }

    /// Places of secrets, and the characters that one cannot contain there.
    const FORMS: [(&str, &str); 18] = [
        ("d --token SECRET --name n", ""),
        ("d --token=SECRET --name n", ""),
        ("d --Password SECRET", ""),
        ("d -o name=admin,secret=SECRET,rw /mnt", ","),
        ("d -ouser=u,password=SECRET", ","),
        ("d AWS_ACCESS_KEY=SECRET", ""),
        ("d DB_PASSWORD=SECRET x", ""),
        ("d redis://:SECRET@h:6379/1 /mnt", ":"),
        ("d redis://:a@h/1,redis://:SECRET@h/2", ":"),
        ("d redis://:SECRET@h/1,redis://:b@h/2", ":"),
        ("d --url=https://u:SECRET@h/b", ":"),
        ("d postgres://h/db?password=SECRET", "&"),
        ("d postgres://h/db?sslmode=x&password=SECRET&a=b", "&"),
        ("d postgres://u:a@h:5/db?sslmode=x&password=SECRET", "&"),
        ("d Name=n;AccountKey=SECRET;Protocol=https", ";"),
        (
            "benchmesh agent --join=bmjoin-SECRET",
            "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
        ),
        ("x y,bmjoin-SECRET,z", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
        ("d --opts=ro,token=SECRET", ","),
    ];

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
