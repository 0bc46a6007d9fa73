//! Adds to the output of the current event: rows, effects after the commit, immediate effects, and tokens to wait for.

use super::{
    effect::{Ask, Effect, Lookup, Show, Within},
    event::Token,
    run::{Run, after},
    waiting::Waiting,
};
use crate::sessions::command::Command;
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{AgentId, MeshMicros, StepId, StepState, TaskId, TaskState};
use benchmesh_store::rows::{NewEvent, Row, StepChange};
use std::time::Duration;

impl Run {
    /// Persists a state of the step under way, then shows it.
    pub fn enter(&mut self, state: StepState, start: Option<MeshMicros>) {
        self.enter_because(state, start, None);
    }

    pub fn enter_because(
        &mut self,
        state: StepState,
        start: Option<MeshMicros>,
        reason: Option<String>,
    ) {
        let Some(step) = &self.step else { return };
        let (id, index) = (step.id, step.index);
        if let Some(facts) = self.facts.get_mut(index) {
            facts.state = state;
            facts.start = start.or(facts.start);
        }
        self.out.rows.push(Row::Step {
            step: id,
            change: StepChange {
                state,
                at: self.now,
                start,
                ended: None,
                reason,
            },
        });
        self.show(Show::State {
            step: id,
            state,
            start,
        });
    }

    pub fn set_task(&mut self, task: TaskId, state: TaskState, error: Option<String>) {
        self.out.rows.push(Row::Task {
            task,
            state,
            error,
            last_batch: None,
        });
    }

    pub fn wait_for(&mut self, waiting: Waiting) -> Token {
        let token = self.tokens.next();
        self.waiting.insert(token, waiting);
        token
    }

    pub fn then(&mut self, effect: Effect) {
        self.out.then.push(effect);
    }

    pub fn at_once(&mut self, effect: Effect) {
        self.out.at_once.push(effect);
    }

    fn command(
        &mut self,
        waiting: Waiting,
        agent: AgentId,
        command: Command,
        within: Within,
        silence: Option<Duration>,
    ) -> Effect {
        Effect::Ask(Box::new(Ask {
            token: self.wait_for(waiting),
            agent,
            run: Some(self.row.id),
            command,
            loss_after: self.policy.loss_after,
            within,
            silence,
        }))
    }

    /// Asks an agent after the rows of this event are stored.
    pub fn ask(&mut self, waiting: Waiting, agent: AgentId, command: Command, within: Within) {
        let effect = self.command(waiting, agent, command, within, None);
        self.then(effect);
    }

    /// Like `ask`, for a command that reports progress: it counts as hung after `silence` without any.
    pub fn ask_long(
        &mut self,
        waiting: Waiting,
        agent: AgentId,
        command: Command,
        silence: Duration,
    ) {
        let effect = self.command(waiting, agent, command, Within::Contact, Some(silence));
        self.then(effect);
    }

    /// Asks without waiting for the commit: for commands that end load, or that change nothing that has to be stored.
    pub fn ask_at_once(
        &mut self,
        waiting: Waiting,
        agent: AgentId,
        command: Command,
        within: Within,
    ) {
        let effect = self.command(waiting, agent, command, within, None);
        self.at_once(effect);
    }

    pub fn lookup(&mut self, waiting: Waiting, lookup: Lookup) {
        let token = self.wait_for(waiting);
        self.then(Effect::Lookup { token, lookup });
    }

    pub fn wait_until(&mut self, waiting: Waiting, at: MeshMicros) -> Token {
        let token = self.wait_for(waiting);
        self.at_once(Effect::Wait { token, at });
        token
    }

    pub fn wait(&mut self, waiting: Waiting, time: Duration) -> Token {
        self.wait_until(waiting, after(self.now, time))
    }

    /// Cancels the tokens that `which` selects.
    pub fn cancel(&mut self, which: impl Fn(&Waiting) -> bool) {
        let gone: Vec<Token> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| which(waiting))
            .map(|(token, _)| *token)
            .collect();
        for token in gone {
            self.waiting.remove(&token);
            self.at_once(Effect::Cancel(token));
        }
    }

    pub fn show(&mut self, show: Show) {
        let run = self.row.id;
        self.then(Effect::Show { run, show });
    }

    pub fn show_at_once(&mut self, show: Show) {
        let run = self.row.id;
        self.at_once(Effect::Show { run, show });
    }

    pub fn show_message(&mut self, message: String) {
        self.show(Show::Message(message));
    }

    pub fn show_message_at_once(&mut self, message: String) {
        self.show_at_once(Show::Message(message));
    }

    /// Shows watchers that data are being removed.
    pub fn removal_begins(&mut self) {
        if self.removing == 0 {
            self.show(Show::Removing);
        }
        self.removing = 1;
    }

    pub fn removal_is_over(&mut self) {
        if self.removing > 0 {
            self.show(Show::RemovingOver);
        }
        self.removing = 0;
    }

    /// Stores an event of the current step, and shows its message to watchers.
    pub fn record_event(&mut self, agent: Option<AgentId>, kind: EventKind, message: String) {
        let step = self.step.as_ref().map(|step| step.id);
        self.record_event_of(step, agent, kind, message, None);
    }

    pub fn record_event_of(
        &mut self,
        step: Option<StepId>,
        agent: Option<AgentId>,
        kind: EventKind,
        message: String,
        detail_json: Option<String>,
    ) {
        self.store_event(NewEvent {
            step,
            agent,
            detail_json,
            ..NewEvent::new(self.now, kind, message)
        });
    }

    /// Stores an event of the run, and shows its message to watchers.
    pub fn store_event(&mut self, event: NewEvent) {
        let message = event.message.clone();
        self.out.rows.push(Row::Event(NewEvent {
            run: Some(self.row.id),
            ..event
        }));
        self.show_message(message);
    }
}
