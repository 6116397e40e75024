package extender

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The messages of the extender protocol, version 1, under its JSON names.

type filterArgs struct {
	Pod       *corev1.Pod      `json:"Pod"`
	Nodes     *corev1.NodeList `json:"Nodes"`     // unless the extender knows the nodes
	NodeNames *[]string        `json:"NodeNames"` // if it does
}

type filterResult struct {
	Nodes                      *corev1.NodeList  `json:"Nodes"`
	NodeNames                  *[]string         `json:"NodeNames"`
	FailedNodes                map[string]string `json:"FailedNodes"` // by name: why
	FailedAndUnresolvableNodes map[string]string `json:"FailedAndUnresolvableNodes"`
	Error                      string            `json:"Error"`
}

// rating is what an extender gives one node: 0 to 10.
type rating struct {
	Host  string `json:"Host"`
	Score int64  `json:"Score"`
}

type bindArgs struct {
	PodName      string    `json:"PodName"`
	PodNamespace string    `json:"PodNamespace"`
	PodUID       types.UID `json:"PodUID"`
	Node         string    `json:"Node"`
}

type bindResult struct {
	Error string `json:"Error"`
}

type victims struct {
	Pods             []*corev1.Pod `json:"Pods"`
	NumPDBViolations int64         `json:"NumPDBViolations"`
}

type metaPod struct {
	UID string `json:"UID"`
}

type metaVictims struct {
	Pods             []*metaPod `json:"Pods"`
	NumPDBViolations int64      `json:"NumPDBViolations"`
}

type preemptArgs struct {
	Pod                   *corev1.Pod             `json:"Pod"`
	NodeNameToVictims     map[string]*victims     `json:"NodeNameToVictims"`
	NodeNameToMetaVictims map[string]*metaVictims `json:"NodeNameToMetaVictims"`
}

type preemptResult struct {
	NodeNameToMetaVictims map[string]*metaVictims `json:"NodeNameToMetaVictims"`
}
