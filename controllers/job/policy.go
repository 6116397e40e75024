package job

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// judgement is what a Job's pod failure policy says of one failed pod.
type judgement struct {
	action  batchv1.PodFailurePolicyAction // empty: no rule matches, so it counts
	message string                         // for FailJob: why
}

func (g judgement) ignores() bool { return g.action == batchv1.PodFailurePolicyActionIgnore }

// judge applies the first rule that matches.
func judge(policy *batchv1.PodFailurePolicy, p *corev1.Pod) judgement {
	if policy == nil || p.Status.Phase != corev1.PodFailed {
		return judgement{}
	}
	for i, rule := range policy.Rules {
		if rule.OnExitCodes != nil {
			if s := exited(p, rule.OnExitCodes); s != nil {
				return judgement{rule.Action, fmt.Sprintf("Container %s for pod %s/%s failed with exit code %d matching %s rule at index %d",
					s.Name, p.Namespace, p.Name, s.State.Terminated.ExitCode, rule.Action, i)}
			}
			continue
		}
		for _, pattern := range rule.OnPodConditions {
			if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == pattern.Type && c.Status == pattern.Status }) {
				return judgement{rule.Action, fmt.Sprintf("Pod %s/%s has condition %s matching %s rule at index %d", p.Namespace, p.Name, pattern.Type, rule.Action, i)}
			}
		}
	}
	return judgement{}
}

// exited finds a container that failed with an exit code as the rule demands. Code 0 is no failure.
func exited(p *corev1.Pod, rule *batchv1.PodFailurePolicyOnExitCodesRequirement) *corev1.ContainerStatus {
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range statuses {
			s := &statuses[i]
			if s.State.Terminated == nil || s.State.Terminated.ExitCode == 0 || rule.ContainerName != nil && *rule.ContainerName != s.Name {
				continue
			}
			in := slices.Contains(rule.Values, s.State.Terminated.ExitCode)
			if in == (rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn) {
				return s
			}
		}
	}
	return nil
}

// succeedsEarly tells whether a Job's success policy is met by the indexes that succeeded, and by which rule.
func succeedsEarly(policy *batchv1.SuccessPolicy, succeeded indexes, completions int) (string, bool) {
	if policy == nil || len(succeeded) == 0 {
		return "", false
	}
	for i, rule := range policy.Rules {
		matched := len(succeeded)
		need := completions
		if rule.SucceededIndexes != nil {
			of := parseIndexes(*rule.SucceededIndexes, completions)
			need, matched = len(of), 0
			for index := range of {
				if succeeded[index] {
					matched++
				}
			}
		}
		if rule.SucceededCount != nil {
			need = int(*rule.SucceededCount)
		}
		if matched >= need {
			return fmt.Sprintf("Matched rules at index %d", i), true
		}
	}
	return "", false
}
