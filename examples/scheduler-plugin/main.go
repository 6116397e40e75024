// The command scheduler is Yare's scheduler with a plugin of one's own. It serves beside the scheduler of `yare up`, or against any Kubernetes API server.
package main

import "github.com/yare-project/yare/scheduler/command"

func main() { command.Main(command.WithPlugin(Name, New)) }
