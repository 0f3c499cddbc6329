package hub

import "time"

// A Pod is one pod of an application, as its agent sees it.
type Pod struct {
	Namespace  string
	Name       string
	UID        string // empty: its containers were not read
	Phase      string
	Gone       bool // it was deleted; the agent has the last lines of its containers
	Containers []Container
}

// A Container is one of a pod.
type Container struct {
	Name      string
	Init      bool
	Ephemeral bool
	State     string // running, waiting or terminated
	Reason    string // such as CrashLoopBackOff
	Restarts  uint32
	Started   time.Time // of the current instance; zero: it has not started
}

// A LogTarget is a container whose log is read.
type LogTarget struct {
	Namespace string
	Pod       string
	UID       string // of the pod; empty: whichever has the name
	Container string
}

// An Event is a Kubernetes event of an object.
type Event struct {
	ObjectRef

	Type    string // Normal or Warning
	Reason  string
	Message string
	Count   uint32
	First   time.Time
	Last    time.Time
	Source  string // component that has reported it
}
