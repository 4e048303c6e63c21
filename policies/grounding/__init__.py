"""The category ``grounding``: does the reply say what its sources say?"""
