// Package extender asks HTTP extenders of kube-scheduler, as a KubeSchedulerConfiguration lists them, about pods: which nodes they refuse, how they rate the
// rest, who may be preempted, and to bind.
//
// An extender is slow beside a decision, so nothing here runs while one is made. Who decides makes a [Plugin] part of each profile and decides twice: the
// first decision ends with the [Question] that the plugin left in the cycle; [Set.Ask] puts it to the extenders, beside other decisions; the second decision
// follows their [Answer] on the state of that moment, so that nothing is placed where it no longer fits. A node that became feasible in between has not been
// judged: it is left out, and if nothing else is left the question is asked again. Of pods that are decided on together all questions are collected first, each
// decision going on as [Suppose] has it, and asked at once.
//
// Guarantees: extenders filter one after the other, each seeing what the one before left; those that may fail without consequence come last; ratings are
// asked for at the same time and count ten times their weight; an answer is limited in time and size. What an extender answers about nodes or pods that it
// was not asked about is an error.
//
// Concurrency: a Set is immutable and safe for concurrent use; the plugin follows the rules of package framework.
package extender
