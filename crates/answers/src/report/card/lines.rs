//! A card as text: lines of a given width, each with its state.

use super::{Card, CardLine, CardList, CardLoad, CardState, Trust, VALIDITY, line};

/// Maximum width of the column of loads.
const MAX_LOAD: usize = 30;
/// Loads without room for a column of their own have their answer on the next line.
const MIN_ANSWER: usize = 40;

/// The text, cut at a space and marked if it is longer than the width.
fn clipped(text: String, width: usize) -> String {
    if text.chars().count() <= width {
        return text;
    }
    let room: String = text.chars().take(width.saturating_sub(4)).collect();
    let kept = room
        .rsplit_once(' ')
        .map_or(room.as_str(), |(kept, _)| kept);
    format!("{kept} ...")
}

/// The lines of a card, at most this wide as far as words allow.
pub fn lines(card: &Card, width: usize) -> Vec<CardLine> {
    let mut out = Vec::new();
    if !card.title.is_empty() {
        out.extend(wrapped(
            &line(CardState::Note, card.title.clone()),
            "",
            width,
        ));
    }
    out.extend(
        card.objectives
            .iter()
            .flat_map(|one| wrapped(one, "  ", width)),
    );
    if !card.loads.is_empty() {
        out.push(line(CardState::Note, ""));
        out.extend(of_loads(&card.loads, width));
    }
    if card.loads_left_out > 0 {
        let text = format!("{} more loads in the tables below", card.loads_left_out);
        out.push(line(CardState::Note, text));
    }
    for (title, list) in card.lists() {
        out.extend(of_list(title, list, width));
    }
    if !card.next.is_empty() {
        out.push(line(CardState::Note, ""));
        out.push(line(CardState::Note, format!("Next: {}", card.next)));
    }
    out
}

/// Checks of validity have a line each: their section has the whole text.
fn of_list(title: &str, list: &CardList, width: usize) -> Vec<CardLine> {
    let one_line = title == VALIDITY;
    if list.is_empty() {
        return Vec::new();
    }
    let mut out = vec![line(CardState::Note, "")];
    let indent = " ".repeat(title.len() + 2);
    for (at, one) in list.lines.iter().enumerate() {
        let first = match at {
            0 => format!("{title}: "),
            _ => indent.clone(),
        };
        let text = format!("{first}{}", one.text);
        match one_line {
            true => out.push(line(one.state, clipped(text, width))),
            false => out.extend(wrapped(&line(one.state, text), &indent, width)),
        }
    }
    if list.more > 0 {
        let text = format!("{indent}{} more: {}", list.more, list.command);
        out.push(line(CardState::Note, text));
    }
    out
}

/// A line per load: its name, the answer, and the trust in it.
pub fn of_loads(loads: &[CardLoad], width: usize) -> Vec<CardLine> {
    let longest = loads.iter().map(|load| load.load.chars().count()).max();
    let column = longest.unwrap_or(0).min(MAX_LOAD) + 2;
    let mut out = Vec::new();
    for load in loads {
        let state = match load.trust {
            Some(Trust::Proven) | None => CardState::Good,
            Some(Trust::Likely | Trust::NotShown) => CardState::Note,
            Some(Trust::CannotTell) => CardState::Warning,
        };
        let answer = load.answer();
        let long = load.load.chars().count() + 2 > column || width < column + MIN_ANSWER;
        let indent = " ".repeat(if width < column + MIN_ANSWER {
            4
        } else {
            column
        });
        if long {
            out.push(line(state, load.load.clone()));
            let text = format!("{indent}{answer}");
            out.extend(wrapped(&line(state, text), &indent, width));
        } else {
            let text = format!("{:column$}{answer}", load.load);
            out.extend(wrapped(&line(state, text), &indent, width));
        }
    }
    out
}

/// Breaks a line at spaces; the further ones begin with `indent`.
fn wrapped(one: &CardLine, indent: &str, width: usize) -> Vec<CardLine> {
    let mut out: Vec<String> = Vec::new();
    let mut current = String::new();
    let lead: String = one.text.chars().take_while(|c| *c == ' ').collect();
    for piece in one.text.trim_start().split(' ') {
        if current.is_empty() {
            current = match out.is_empty() {
                true => format!("{lead}{piece}"),
                false => format!("{indent}{piece}"),
            };
        } else if current.chars().count() + 1 + piece.chars().count() > width {
            out.push(std::mem::replace(&mut current, format!("{indent}{piece}")));
        } else {
            current.push(' ');
            current.push_str(piece);
        }
    }
    out.push(current);
    out.into_iter().map(|text| line(one.state, text)).collect()
}
