package core

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits of a resolver's configuration, from Linux libc.
const (
	maxNameservers     = 3
	maxSearchPaths     = 32
	maxSearchListChars = 2048
)

func (c *podCheck) checkDNS(path *field.Path) {
	neededInOrder(&c.problems, path.Child("dnsPolicy"), c.spec.DNSPolicy, corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)
	config, at := c.spec.DNSConfig, path.Child("dnsConfig")
	if c.spec.DNSPolicy == corev1.DNSNone {
		if config == nil {
			c.required(at, fmt.Sprintf("must provide `dnsConfig` when `dnsPolicy` is %s", corev1.DNSNone))
			return
		}
		if len(config.Nameservers) == 0 {
			c.required(at.Child("nameservers"), fmt.Sprintf("must provide at least one DNS nameserver when `dnsPolicy` is %s", corev1.DNSNone))
			return
		}
	}
	if config == nil {
		return
	}
	if len(config.Nameservers) > maxNameservers {
		c.invalid(at.Child("nameservers"), config.Nameservers, fmt.Sprintf("must not have more than %v nameservers", maxNameservers))
	}
	for i, server := range config.Nameservers {
		c.ip(at.Child("nameservers").Index(i), server)
	}
	if len(config.Searches) > maxSearchPaths {
		c.invalid(at.Child("searches"), config.Searches, fmt.Sprintf("must not have more than %v search paths", maxSearchPaths))
	}
	if len(strings.Join(config.Searches, " ")) > maxSearchListChars {
		c.invalid(at.Child("searches"), config.Searches, fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", maxSearchListChars))
	}
	for i, search := range config.Searches {
		if search != "." {
			search = strings.TrimSuffix(search, ".")
			c.each(at.Child("searches").Index(i), search, validation.IsDNS1123SubdomainWithUnderscore(search))
		}
	}
	for i, option := range config.Options {
		if option.Name == "" {
			c.required(at.Child("options").Index(i), "must not be empty")
		}
	}
}
