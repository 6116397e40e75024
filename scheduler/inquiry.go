package scheduler

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/scheduler/extender"
	"github.com/yare-project/yare/scheduler/framework"
)

// mostRounds is how often extenders are asked at most before a group is decided on: what they are asked about changes while they think.
const mostRounds = 4

// inquiry is what extenders are asked about the pods of a group, and what they said so far. It serves one decision. Only Run's goroutine uses it.
//
// kube-scheduler asks pod after pod, each on the state that the ones before leave, and waits for the answers. Here all questions of a group are collected first: about where each
// pod could go if it were alone, and about where it could go next to the others as if the extenders agreed to everything. They are asked at once, beside other decisions, and the group
// is decided on by the answers, on the state of that moment. What that leaves to ask is asked again.
type inquiry struct {
	rounds    int
	answers   map[types.UID]answered
	questions map[types.UID]*extender.Question
}

// answered is what was said about a pod as it was then.
type answered struct {
	pod    *corev1.Pod
	answer *extender.Answer
}

// Follow implements gang.Asker.
func (q *inquiry) Follow(c *framework.Cycle) {
	if a, ok := q.answers[c.Pod.Object.UID]; ok && !selfChanged(a.pod, c.Pod.Object) {
		extender.Follow(c, a.answer)
	}
}

// Open implements gang.Asker.
func (q *inquiry) Open(c *framework.Cycle) bool {
	asked := extender.Asked(c)
	if asked == nil {
		return false
	}
	if q.questions == nil {
		q.questions = map[types.UID]*extender.Question{}
	}
	q.questions[asked.Pod.UID] = q.questions[asked.Pod.UID].Join(asked)
	return true
}

// Suppose implements gang.Asker.
func (*inquiry) Suppose(c *framework.Cycle) { extender.Suppose(c) }

// inquire collects what is to be asked about the pods of a group, each for itself; false if there is nothing, or if it was done before.
func (s *Scheduler) inquire(g *group, members []*item, q *inquiry) bool {
	if s.extenders == nil || q.rounds > 0 || len(members)+len(g.placed) < g.least() {
		return false
	}
	for _, m := range members {
		if !s.extenders.Consults(m.pod.Object) {
			continue
		}
		c := m.profile.Begin(m.pod)
		if _, _, err := m.profile.Decide(c); err == nil { // an error comes again, and is told then
			q.Open(c)
		}
	}
	return len(q.questions) > 0
}

// askGroup puts the questions about a group's pods to the extenders, and decides on the group once all are answered.
func (s *Scheduler) askGroup(g *group, members []*item, q *inquiry) {
	for _, m := range members {
		s.queue.leave(m)
		m.place = asking
	}
	questions := q.questions
	q.questions, g.inquiry = nil, q
	q.rounds++
	s.tasks.Go(func() {
		answers := s.askAll(questions)
		s.inbox.tell(func(s *Scheduler) { s.groupAnswered(g, q, questions, answers) })
	})
}

// askAll asks about several pods, as far as possible at once.
func (s *Scheduler) askAll(questions map[types.UID]*extender.Question) map[types.UID]*extender.Answer {
	var mu sync.Mutex
	var all sync.WaitGroup
	answers := map[types.UID]*extender.Answer{}
	for uid, one := range questions {
		all.Go(func() {
			select {
			case s.asks <- struct{}{}:
			case <-s.ctx.Done():
				return
			}
			a := s.extenders.Ask(s.ctx, one)
			<-s.asks
			mu.Lock()
			defer mu.Unlock()
			answers[uid] = a
		})
	}
	all.Wait()
	return answers
}

// groupAnswered goes on with a group of which some pods may be gone, or new, by now.
func (s *Scheduler) groupAnswered(g *group, q *inquiry, questions map[types.UID]*extender.Question, answers map[types.UID]*extender.Answer) {
	if g.inquiry != q || s.ctx.Err() != nil {
		return
	}
	g.inquiry = nil
	var waiting []*item
	for _, it := range g.queued {
		if it.place == asking {
			it.place = nowhere
			waiting = append(waiting, it)
		}
	}
	switch {
	case len(waiting) == 0:
		return
	case g.object == nil || g.pods() < g.least():
		for _, it := range waiting {
			s.queue.admit(it, s.now()) // which gates it
			s.tellGate(it)
		}
		return
	}
	for uid, a := range answers {
		if a.Err != nil {
			s.failGroup(g, g.members(), a.Err, s.now())
			return
		}
		q.answers[uid] = answered{questions[uid].Pod, q.answers[uid].answer.Join(a)}
	}
	s.decideGroup(g, q)
}
