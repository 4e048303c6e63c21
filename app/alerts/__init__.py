"""Alerts: rules over recent requests, and the notifications sent when a rule starts or stops firing."""
